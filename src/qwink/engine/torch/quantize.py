"""Weights in 8 bits, for cards with little memory.

They are widened for each product: this saves memory, not time. torchao's int8 does the same. Its
int4 kernels need bfloat16, which small cards lack.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from qwink.errors import OptionError

METHODS = ("int8",)


class Int8Linear(nn.Module):
    """A linear layer with int8 weights, rounded to nearest, and a scale for each output."""

    weight: Tensor  # int8 [N, K]
    scale: Tensor  # [N, 1]

    def __init__(self, source: nn.Linear) -> None:
        super().__init__()
        values = source.weight.detach().float()
        scale = values.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
        self.register_buffer("weight", (values / scale).round().to(torch.int8))
        self.register_buffer("scale", scale.to(source.weight.dtype))
        self.bias = source.bias

    def forward(self, x: Tensor) -> Tensor:
        # Scaled before the product, because the unscaled product overflows float16.
        return linear(x, self.weight.to(x.dtype) * self.scale, self.bias)


def check_method(method: str | None) -> None:
    """Raises OptionError for an unknown method."""
    if method is not None and method not in METHODS:
        raise OptionError(f"quantize is {method!r}; it must be {', '.join(METHODS)}")


def quantize(module: nn.Module) -> None:
    """Replace all linear layers of a module by int8 layers."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, Int8Linear(child))
