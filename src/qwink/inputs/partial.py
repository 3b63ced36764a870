"""Pixels of a file whose end is missing: what can be decoded, if that is most of the picture.

Pillow's way, `ImageFile.LOAD_TRUNCATED_IMAGES`, is a variable of the whole process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
import PIL.Image
from numpy.typing import NDArray
from PIL.ImageFile import ImageFile

PARTIAL = ("JPEG", "PNG")  # formats that are stored row by row
_LEAST_SHARE = 0.5  # of the rows; with fewer the file is refused
_END_OF_JPEG = b"\xff\xd9"
_SCAN = b"\xff\xda"  # begins a scan of a JPEG; a progressive one has about ten


def load_partly(
    kind: str, data: bytes, open_again: Callable[[bytes], ImageFile]
) -> tuple[ImageFile, str] | None:
    """A loaded image and a warning, or None if too little of it can be decoded.

    Call it after a load has failed. `open_again` gives an image from bytes, prepared as before.
    """
    image = open_again(data)
    if image.info.get("interlace") or image.info.get("progressive"):
        # Rows are stored in several passes. Two scans of a JPEG show the whole picture, coarsely.
        if kind != "JPEG" or data.count(_SCAN) < 2:
            return None
        image = open_again(data + _END_OF_JPEG)
        image.load()
        return image, "cut off: parts of it are coarse or grey; save or download the file again"
    with contextlib.suppress(OSError):
        image.load()  # the rows before the end of the data are decoded, the others are zero
    if image._im is None:
        return None
    rows = _rows(image)
    missing = _num_last((rows == 0).all(axis=1))
    if kind == "JPEG":
        # The decoder holds rows back that it has. With an end, it gives them, then rows without
        # detail.
        image = open_again(data + _END_OF_JPEG)
        image.load()
        rows = _rows(image)
        missing = min(missing, _num_last((rows[1:] == rows[:-1]).all(axis=1)))
    else:
        image.tile = []  # so that Pillow counts it as loaded
    share = missing / image.height
    if 1 - share < _LEAST_SHARE:
        return None
    rest = (
        f"the last {share * 100:.0f} % of its rows are missing"
        if missing
        else "almost nothing is missing"
    )
    return image, f"cut off at its end: {rest}; save or download the file again"


def _rows(image: ImageFile) -> NDArray[np.uint8]:
    """The pixels [H, W * bands] as far as they are decoded."""
    pixels = np.asarray(PIL.Image.Image()._new(image.im))
    return pixels.reshape(image.height, -1)


def _num_last(holds: NDArray[np.bool_]) -> int:
    """How many of the last elements hold."""
    return len(holds) if holds.all() else int(np.argmin(holds[::-1]))
