"""Weights in fewer bits, by torchao. They are widened again for each product: that saves memory,
not time.

int8 only: torchao's int4 kernels want bfloat16, which the small cards that need it lack.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from qwink.errors import OptionError


def quantizer(method: str) -> Callable[[nn.Module], None]:
    """What quantises a module's linear layers in place. Raises OptionError."""
    if method != "int8":
        raise OptionError(f"quantize is {method!r}; it must be int8")
    try:
        from torchao.quantization import Int8WeightOnlyConfig, quantize_
    except ImportError:
        raise OptionError(
            "quantize needs torchao; install it with: pip install 'qwink[torch,quantize]'"
        ) from None

    def quantize(module: nn.Module) -> None:
        quantize_(module, Int8WeightOnlyConfig())

    return quantize
