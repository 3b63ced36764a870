"""What an artifact is made for: which operators read it, and how far int8 weights reach."""

from __future__ import annotations

from dataclasses import dataclass

from qwink.errors import OptionError
from qwink.export.recipe import FP32, Recipe
from qwink.native import FULL_INT8, Capabilities, Layout, capabilities


@dataclass(frozen=True, slots=True)
class Target:
    """The layout of weights and cache, and the largest int8 weight.

    Our operators add up int8 products exactly on every processor. ONNX Runtime's do so on some
    processors only if weights are smaller: see `Capabilities.int8_limit`.
    """

    layout: Layout = "onnxruntime"
    int8_limit: int = FULL_INT8


def choose_target(
    recipe: Recipe, layout: Layout | None = None, here: Capabilities | None = None
) -> Target:
    """The target for a machine with capabilities `here`; by default, for this one.

    Without a `layout`, the fastest that loads there. Recipes of fp32 are for ONNX Runtime's
    operators, because ours compute with integers. Raises OptionError for another layout of those.
    """
    here = capabilities() if here is None else here
    if recipe.vision == FP32:
        if layout not in (None, "onnxruntime"):
            raise OptionError(
                f"recipe {recipe.name} is fp32, which qwink's own operators do not compute; "
                "use layout onnxruntime, or leave the layout out"
            )
        return Target()
    layout = layout or here.layouts[0]
    return Target(layout, here.int8_limit if layout == "onnxruntime" else FULL_INT8)
