"""What lies behind transparent parts of a picture: white, or black behind light content."""

from __future__ import annotations

import numpy as np
import PIL.Image
from numpy.typing import NDArray

DARK_GROUND = (
    "light content on a transparent background was placed on black, because white would hide it"
)

_LEAST_TRANSPARENT = 0.05  # share of the pixels; below it the background changes little
_VISIBLE = 32  # of 255: less opaque pixels count as transparent
_LOW_CONTRAST = 64.0  # of 255, mean over the pixels that meet the ground
_REACH = 2  # pixels


def lay_on_ground(image: PIL.Image.Image) -> tuple[PIL.Image.Image, tuple[str, ...]]:
    """An RGBA image without its transparency, and a warning if the ground is not white."""
    dark = _is_light(np.asarray(image))
    canvas = PIL.Image.new("RGB", image.size, "black" if dark else "white")
    canvas.paste(image, mask=image.getchannel("A"))
    return canvas, (DARK_GROUND,) if dark else ()


def _is_light(rgba: NDArray[np.uint8]) -> bool:
    """Whether what meets the transparent parts [H, W, 4] would vanish on white but not on black."""
    alpha = rgba[..., 3]
    transparent = alpha < _VISIBLE
    if transparent.mean() < _LEAST_TRANSPARENT:
        return False
    edge = _grown(transparent) & ~transparent
    if not edge.any():
        return False
    red, green, blue, opacity = rgba[edge].astype(np.float32).T
    light = 0.299 * red + 0.587 * green + 0.114 * blue
    total = opacity.sum()
    on_white = float(((255 - light) * opacity).sum() / total)
    on_black = float((light * opacity).sum() / total)
    return on_white < _LOW_CONTRAST < on_black


def _grown(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """`mask` [H, W] and the pixels up to `_REACH` away from it."""
    grown = mask.copy()
    for step in range(1, _REACH + 1):
        grown[step:] |= mask[:-step]
        grown[:-step] |= mask[step:]
        grown[:, step:] |= mask[:, :-step]
        grown[:, :-step] |= mask[:, step:]
    return grown
