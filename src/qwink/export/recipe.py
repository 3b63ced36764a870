"""Recipes: which arithmetic each part of the model uses, and why one would choose it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from qwink.errors import OptionError


@dataclass(frozen=True, slots=True)
class Scheme:
    """How one linear layer is stored and computed.

    - `fp32`: as it is.
    - `w8a8`: int8 weights with a scale per output, uint8 activations with a scale per row.
    - `nbits`: weights of `bits` bits in blocks of `block` with a scale each; the activations are
      quantised to int8 by the kernel itself (MatMulNBits, accuracy level 4).
    """

    kind: Literal["fp32", "w8a8", "nbits"]
    bits: int = 0
    block: int = 0


FP32 = Scheme("fp32")
W8A8 = Scheme("w8a8")


def nbits(bits: int, block: int) -> Scheme:
    return Scheme("nbits", bits, block)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Schemes per part. `prefill is None`: the decode weights serve both phases.

    `sensitive` replaces `decode` for the matrices whose rounding hurts most: the value projection,
    and the down projection of the first and last eighth of the layers.
    """

    name: str
    summary: str
    vision: Scheme
    prefill: Scheme | None
    decode: Scheme
    sensitive: Scheme
    head: Scheme

    @property
    def shares_text_weights(self) -> bool:
        return self.prefill is None


RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("exact", "fp32 throughout; the reference", FP32, None, FP32, FP32, FP32),
        Recipe(
            "quality",
            "one 8-bit copy serves both phases; when in doubt about 4 bits",
            W8A8,
            None,
            W8A8,
            W8A8,
            W8A8,
        ),
        Recipe(
            "balanced",
            "8-bit prefill, 4-bit decode with the sensitive matrices and the head at 8",
            W8A8,
            W8A8,
            nbits(4, 32),
            nbits(8, 128),
            nbits(8, 128),
        ),
        Recipe(
            "fast",
            "8-bit prefill, 4-bit decode in blocks of 128",
            W8A8,
            W8A8,
            nbits(4, 128),
            nbits(4, 128),
            nbits(4, 128),
        ),
        Recipe(
            "small",
            "one 4-bit copy serves both phases; least memory",
            W8A8,
            None,
            nbits(4, 64),
            nbits(4, 64),
            nbits(4, 64),
        ),
    )
}
DEFAULT_RECIPE = "balanced"


def get_recipe(name: str) -> Recipe:
    """Raises OptionError for an unknown name."""
    try:
        return RECIPES[name]
    except KeyError:
        raise OptionError(f"no recipe {name!r}; there are: {', '.join(RECIPES)}") from None
