"""Values of more than 8 bits to 8, stretched where they use a small part of their range."""

from __future__ import annotations

from typing import Any

import numpy as np
import PIL.Image
from numpy.typing import NDArray
from PIL.ImageFile import ImageFile
from PIL.PngImagePlugin import PngImageFile

_NARROW = 4  # values that span less than this part of their range are stretched
_LEAST_LEVELS = 16  # of 256; a picture with fewer has almost no contrast
_SAME = 3  # levels that a plain surface may have after lossy compression


def is_deep(image: PIL.Image.Image) -> bool:
    """Whether it is grey of 16 or 32 bits, which Pillow's conversion would clip."""
    return image.mode in ("I", "F") or image.mode.startswith("I;16")


def to_8_bits(image: PIL.Image.Image) -> tuple[PIL.Image.Image, tuple[str, ...]]:
    """Grey of 16 or 32 bits to 8, and a warning if the values were stretched."""
    values = np.asarray(image)
    transparent = image.info.get("transparency")
    visible = values if not isinstance(transparent, int) else values[values != transparent]
    if image.mode.startswith("I;16"):
        ranges: tuple[float, ...] = (65535.0,)
    else:
        values = np.nan_to_num(values.astype(np.float32), posinf=0.0, neginf=0.0)
        visible = np.nan_to_num(visible.astype(np.float32), posinf=0.0, neginf=0.0)
        # The smallest common range that holds the values; floats may be 0..1.
        ranges = (1.0, 255.0, 65535.0) if image.mode == "F" else (255.0, 65535.0)
    grey, notes = _scaled(values, visible if visible.size else values, ranges)
    if isinstance(transparent, int):
        grey[np.asarray(image) == transparent] = 255
    return PIL.Image.fromarray(grey), notes


def is_deep_png(image: ImageFile) -> bool:
    """Whether it is a colour PNG of 16 bits, of which Pillow reads the upper 8. Before loading."""
    return isinstance(image, PngImageFile) and _raw_mode(image).endswith(";16B")


def lower_bytes(image: ImageFile) -> None:
    """Make Pillow read the lower 8 bits of a colour PNG of 16 bits. Before loading."""
    (tile,) = image.tile
    # With the bytes of each value swapped, the lower one is read as the upper one.
    image.tile = [tile._replace(args=_raw_mode(image).replace("16B", "16L"))]


def joined(
    upper: PIL.Image.Image, lower: PIL.Image.Image
) -> tuple[PIL.Image.Image, tuple[str, ...]]:
    """Colours of 16 bits, given as two images of 8, to 8 bits; alpha is taken from `upper`."""
    values = np.asarray(upper).astype(np.uint16) << 8 | np.asarray(lower)
    colours = values[..., :3]
    visible = colours
    if values.shape[2] == 4 and values[..., 3].any():
        visible = colours[values[..., 3] > 0]
    grey, notes = _scaled(colours, visible, (65535.0,))
    if values.shape[2] == 4:
        grey = np.concatenate([grey, np.asarray(upper)[..., 3:]], axis=2)
    return PIL.Image.fromarray(grey), notes


def uses_few_levels(image: PIL.Image.Image) -> bool:
    """Whether the upper bytes of 16-bit colours leave most of their range unused."""
    bands = image.getextrema()[:3]
    low, high = min(band[0] for band in bands), max(band[1] for band in bands)  # type: ignore[index]
    return bool(high - low <= 256 // _NARROW)


def contrast_warnings(rgb: PIL.Image.Image) -> tuple[str, ...]:
    """A warning if the values of an 8-bit RGB picture differ very little but are not equal."""
    bands: Any = rgb.getextrema()
    spans = [high - low for low, high in bands]
    if not _SAME < max(spans) < _LEAST_LEVELS:
        return ()
    low, high = min(band[0] for band in bands), max(band[1] for band in bands)
    return (f"almost no contrast: its values lie between {low} and {high} of 255",)


def _raw_mode(image: ImageFile) -> str:
    if len(image.tile) != 1:
        return ""
    found = image.tile[0].args
    mode = found if isinstance(found, str) else found[0] if found else ""
    return mode if isinstance(mode, str) and mode in ("RGB;16B", "RGBA;16B") else ""


def _scaled(
    values: NDArray[Any], visible: NDArray[Any], ranges: tuple[float, ...]
) -> tuple[NDArray[np.uint8], tuple[str, ...]]:
    """`values` to 0..255: the range that holds those of `visible`, or their span if it is small."""
    low, high = float(visible.min()), float(visible.max())
    top = next((top for top in ranges if low >= 0 and high <= top), None)
    notes: tuple[str, ...] = ()
    narrow = top not in (None, 255.0) and 0 < high - low < (top or 0.0) / _NARROW
    if top is None:
        notes = (f"pixel values from {low:g} to {high:g} were stretched to 0..255",)
    elif narrow:
        used = f"pixel values use only {low:g} to {high:g} of 0..{top:g}"
        notes = (f"{used}; they were stretched to 0..255",)
    else:
        low, high = 0.0, top
    scale = np.float32(255.0 / max(high - low, 1e-30))
    scaled = (values.astype(np.float32) - np.float32(low)) * scale
    return np.rint(np.clip(scaled, 0, 255)).astype(np.uint8), notes
