"""Convert Pillow's images of any mode and orientation to upright RGB."""

from __future__ import annotations

import numpy as np
import PIL.Image
from numpy.typing import NDArray
from PIL.ImageFile import ImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile

from qwink.inputs.ground import lay_on_ground
from qwink.inputs.ranges import is_deep, to_8_bits

_ORIENTATION_TAG = 0x0112
_UPRIGHT = {
    2: PIL.Image.Transpose.FLIP_LEFT_RIGHT,
    3: PIL.Image.Transpose.ROTATE_180,
    4: PIL.Image.Transpose.FLIP_TOP_BOTTOM,
    5: PIL.Image.Transpose.TRANSPOSE,
    6: PIL.Image.Transpose.ROTATE_270,
    7: PIL.Image.Transpose.TRANSVERSE,
    8: PIL.Image.Transpose.ROTATE_90,
}


def orientation_of_file(image: ImageFile, data: bytes) -> int:
    """EXIF orientation, 1 to 8, without decoding the pixels."""
    if isinstance(image, TiffImageFile):
        return 1  # Pillow turns the size and pixels of TIFF upright
    if isinstance(image, PngImageFile) and "exif" not in image.info:
        exif = _exif_chunk(data)
        if exif:
            image.info["exif"] = b"Exif\0\0" + exif
    return orientation_of(image)


def orientation_of(image: PIL.Image.Image) -> int:
    try:
        # The base class's method, since that of PNG decodes the picture to look for EXIF.
        value = PIL.Image.Image.getexif(image).get(_ORIENTATION_TAG, 1)
    except Exception:  # the pixels are usable without EXIF
        return 1
    return int(value) if value in _UPRIGHT else 1


def _exif_chunk(png: bytes) -> bytes | None:
    """The eXIf chunk. It may follow the pixels, where Pillow does not look without decoding."""
    at = 8
    while at + 8 <= len(png):
        length = int.from_bytes(png[at : at + 4], "big")
        if png[at + 4 : at + 8] == b"eXIf":
            return png[at + 8 : at + 8 + length]
        at += length + 12
    return None


def upright_pixels(rgb: PIL.Image.Image, orientation: int) -> NDArray[np.uint8]:
    if orientation in _UPRIGHT:
        rgb = rgb.transpose(_UPRIGHT[orientation])
    return np.asarray(rgb, dtype=np.uint8)


def to_rgb(image: PIL.Image.Image) -> tuple[PIL.Image.Image, tuple[str, ...]]:
    """RGB of 8 bits from any mode, and warnings about what had to be changed to see it."""
    notes: tuple[str, ...] = ()
    if is_deep(image):
        image, notes = to_8_bits(image)
    if image.mode == "La":
        image = image.convert("LA")  # Pillow cannot convert La to RGBA directly
    if image.has_transparency_data:
        image, laid = lay_on_ground(image.convert("RGBA"))
        return image, notes + laid
    return (image if image.mode == "RGB" else image.convert("RGB")), notes
