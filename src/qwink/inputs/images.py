"""Turn bytes, files, PIL images and arrays into pictures: upright RGB.

This takes two steps, so that the size is known before anything is decoded::

    opened = open_image("receipt.jpg")             # reads the header: size, format, key
    picture = decode(opened, at_least=(896, 672))  # a JPEG is decoded no larger than useful

Colour profiles are not applied, as in the checkpoints' own preprocessing.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import PIL.Image
from numpy.typing import NDArray
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile

from qwink.errors import ImageError, ImageTooLarge
from qwink.inputs.files import BinaryFile, read_object, read_path, spelled
from qwink.inputs.formats import errors_of_pillow, identify, read_header
from qwink.inputs.partial import PARTIAL, load_partly
from qwink.inputs.ranges import (
    contrast_warnings,
    is_deep_png,
    joined,
    lower_bytes,
    uses_few_levels,
)
from qwink.inputs.upright import orientation_of, orientation_of_file, to_rgb, upright_pixels
from qwink.types import Picture

MAX_IMAGE_PIXELS = 64_000_000


@dataclass(frozen=True, slots=True, eq=False)
class OpenedImage:
    """An image whose header was read and accepted; `decode` makes the pixels.

    `size` is (width, height) in pixels, upright. `key` is the SHA-256 of the file's bytes or, for
    PIL images and arrays (format "pixels"), of the upright RGB pixels and their shape.
    """

    size: tuple[int, int]
    format: str  # one of SUPPORTED_FORMATS, or "pixels"
    key: str
    warnings: tuple[str, ...] = ()
    name: str = "the image"  # what messages call it
    orientation: int = 1  # as in EXIF
    must_reduce: bool = False  # a JPEG whose sides must be halved to stay below the limit
    content: bytes | NDArray[np.uint8] = field(default=b"", repr=False)


def open_image(
    source: bytes
    | str
    | os.PathLike[str]
    | BinaryFile
    | PIL.Image.Image
    | NDArray[np.uint8]
    | NDArray[np.floating[Any]],
    max_image_pixels: int = MAX_IMAGE_PIXELS,
) -> OpenedImage:
    """Read a file's header, or copy the pixels of a PIL image or array.

    Arrays are uint8, or floats in 0..1, [H, W, 3] (RGB), [H, W, 4] (RGBA) or [H, W] (grey).

    Raises ImageTooLarge for more than `max_image_pixels` (width × height) after decoding, before
    it is decoded, and ImageError for anything that cannot be read or is not a picture of a
    supported format. A JPEG may have four times as many pixels, since it is decoded at half size.
    """
    if isinstance(source, np.ndarray):
        return _open_array(source, max_image_pixels)
    if isinstance(source, PIL.Image.Image):
        return _open_pil(source, max_image_pixels)
    if isinstance(source, bytes | bytearray | memoryview):
        return _open_bytes(bytes(source), "the image", max_image_pixels)
    if isinstance(source, str | os.PathLike):
        return _open_bytes(read_path(source), spelled(source), max_image_pixels)
    if isinstance(source, BinaryFile):
        return _open_bytes(read_object(source), "the image", max_image_pixels)
    raise ImageError(
        f"cannot make a picture of {type(source).__name__}; "
        "give a path, bytes, a file object, a PIL image or an array"
    )


def decode(
    opened: OpenedImage,
    at_least: tuple[int, int] | None = None,
    check: Callable[[], None] = lambda: None,
) -> Picture:
    """Decode the first frame or page to upright RGB.

    Transparent parts become white, or black behind light content. Values of 16 bits that use a
    small part of their range are stretched. A JPEG or PNG without its end is decoded if at least
    half of its rows are there. Each of these gives a warning.

    `at_least` is (width, height), upright. A JPEG is then decoded at ½, ¼ or ⅛ of its size where
    both sides stay at least this long; other formats are decoded at full size. With twice the
    final size, the final resample is as good as from all pixels (PSNR 46 dB).

    `check` is called before each piece of the file is decoded, about 64 times for a PNG or GIF and
    every 64 KiB of a JPEG. It may raise a QwinkError to stop.

    Raises ImageError for a damaged file.
    """
    if isinstance(opened.content, np.ndarray):
        return Picture(opened.content, opened.key, opened.size, opened.warnings)

    def open_again(data: bytes) -> ImageFile:
        image = read_header(CheckedFile(data, check), opened.format)
        if isinstance(image, JpegImageFile):
            _reduce(image, opened, at_least)
        if opened.format in ("PNG", "GIF"):  # a few kilobytes of these may hold a large picture
            image.decodermaxblock = min(image.decodermaxblock, max(256, len(data) // 64))
        return image

    with errors_of_pillow(opened.name, opened.format):
        image, notes = _load(opened, open_again)
        rgb, more = to_rgb(image)
        notes += more or contrast_warnings(rgb)
        pixels = upright_pixels(rgb, opened.orientation)
    return Picture(pixels, opened.key, opened.size, opened.warnings + _about(opened.name, notes))


class CheckedFile(io.BytesIO):
    """A file in memory that calls `check` before each read."""

    def __init__(self, data: bytes, check: Callable[[], None]) -> None:
        super().__init__(data)
        self._check = check

    def read(self, size: int | None = -1, /) -> bytes:
        self._check()
        return super().read(size)


def _reduce(image: JpegImageFile, opened: OpenedImage, at_least: tuple[int, int] | None) -> None:
    """Make the decoder of a JPEG scale it down as far as `at_least` and the limit allow."""
    width, height = image.size
    wanted_width, wanted_height = at_least or opened.size
    if opened.orientation >= 5:
        wanted_width, wanted_height = wanted_height, wanted_width
    if opened.must_reduce:
        wanted_width, wanted_height = min(wanted_width, width // 2), min(wanted_height, height // 2)
    if at_least is not None or opened.must_reduce:
        image.draft(None, (max(1, wanted_width), max(1, wanted_height)))


def _load(
    opened: OpenedImage, open_again: Callable[[bytes], ImageFile]
) -> tuple[PIL.Image.Image, tuple[str, ...]]:
    """The decoded image, and warnings."""
    data = opened.content
    assert isinstance(data, bytes)
    image = open_again(data)
    deep = is_deep_png(image)
    try:
        image.load()
    except OSError:
        partly = load_partly(opened.format, data, open_again) if opened.format in PARTIAL else None
        if partly is None:
            raise
        return partly[0], (partly[1],)
    if deep and uses_few_levels(image):
        lower = open_again(data)
        lower_bytes(lower)
        lower.load()
        return joined(image, lower)
    return image, ()


def _open_bytes(data: bytes, name: str, max_image_pixels: int) -> OpenedImage:
    if not data:
        raise ImageError(f"{name} is empty (0 bytes); save or download it again")
    kind = identify(data, name)
    with errors_of_pillow(name, kind):
        image = read_header(io.BytesIO(data), kind)
        reduce = _must_reduce(image, max_image_pixels)
        if not reduce:
            _check_size(image.size, name, max_image_pixels)
        animated = bool(getattr(image, "is_animated", False))
        orientation = orientation_of_file(image, data)
        width, height = image.size
    warnings: tuple[str, ...] = ()
    if animated:
        parts, first = ("pages", "page") if kind == "TIFF" else ("frames", "frame")
        warnings = (f"{name} has several {parts}; only the first {first} is used",)
    return OpenedImage(
        size=(height, width) if orientation >= 5 else (width, height),
        format=kind,
        key=_key(b"file", data),
        warnings=warnings,
        name=name,
        orientation=orientation,
        must_reduce=reduce,
        content=data,
    )


def _must_reduce(image: ImageFile, max_image_pixels: int) -> bool:
    """Whether the limit holds only if the decoder halves the sides.

    Not for a progressive JPEG, since its decoder keeps coefficients of all pixels in memory.
    """
    width, height = image.size
    if not isinstance(image, JpegImageFile) or image.info.get("progressive"):
        return False
    halved = (width + 1) // 2 * ((height + 1) // 2)
    return width * height > max_image_pixels >= halved


def _open_pil(image: PIL.Image.Image, max_image_pixels: int) -> OpenedImage:
    name = "the PIL image"
    if 0 in image.size:
        raise ImageError(f"{name} has no pixels (size {image.width}×{image.height})")
    _check_size(image.size, name, max_image_pixels)
    with errors_of_pillow(name, image.format or "PIL"):
        image.load()  # first, since it turns TIFF upright and finds late EXIF in PNG
        orientation = orientation_of(image)
        rgb, notes = to_rgb(image)
        notes = notes or contrast_warnings(rgb)
        return _pixels_opened(upright_pixels(rgb, orientation), name, notes)


def _open_array(array: NDArray[Any], max_image_pixels: int) -> OpenedImage:
    shape = array.shape
    channels_last = len(shape) == 2 or (len(shape) == 3 and shape[2] in (3, 4))
    known = array.dtype == np.uint8 or np.issubdtype(array.dtype, np.floating)
    if not known or not channels_last or 0 in shape:
        raise ImageError(
            f"cannot use an array of {array.dtype} {list(shape)} as a picture; give uint8 in "
            "0..255 of shape [height, width, 3], [.., .., 4] or [height, width], or floats in 0..1"
        )
    _check_size((shape[1], shape[0]), "the array", max_image_pixels)
    if array.dtype != np.uint8:
        array = _bytes_of_floats(array)
    if len(shape) == 3 and shape[2] == 3:
        return _pixels_opened(array.copy(order="C"), "the array")
    rgb, notes = to_rgb(PIL.Image.fromarray(np.ascontiguousarray(array)))
    return _pixels_opened(upright_pixels(rgb, orientation=1), "the array", notes)


def _bytes_of_floats(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Floats in 0..1 to 0..255. Raises ImageError for other values."""
    low, high = float(array.min()), float(array.max())
    if not (low >= 0 and high <= 1):  # NaN is neither
        if low >= 0 and high <= 255:
            way_out = "divide it by 255, or convert it to uint8"
        else:
            way_out = "scale it, with numpy.clip for stray values"
        raise ImageError(
            f"the array has floats from {low:g} to {high:g}; they must lie in 0..1: {way_out}"
        )
    return np.rint(array.astype(np.float32) * 255).astype(np.uint8)


def _pixels_opened(
    pixels: NDArray[np.uint8], name: str, warnings: tuple[str, ...] = ()
) -> OpenedImage:
    pixels.flags.writeable = False
    height, width, _ = pixels.shape
    return OpenedImage(
        size=(width, height),
        format="pixels",
        key=_key(b"pixels %d %d" % (width, height), pixels.data),
        warnings=_about(name, warnings),
        name=name,
        content=pixels,
    )


def _about(name: str, notes: tuple[str, ...]) -> tuple[str, ...]:
    """Warnings that name the picture."""
    return tuple(f"{name}: {note}" for note in notes)


def _key(domain: bytes, content: bytes | memoryview) -> str:
    """SHA-256 in hex. The domain keeps the keys of files and of pixels apart."""
    digest = hashlib.sha256(b"qwink %s\0" % domain)
    digest.update(content)
    return digest.hexdigest()


def _check_size(size: tuple[int, int], name: str, max_image_pixels: int) -> None:
    width, height = size
    if width * height > max_image_pixels:
        raise ImageTooLarge(
            f"{name} has {width}×{height} = {width * height / 1e6:.1f} megapixels, "
            f"more than the limit of {max_image_pixels / 1e6:.1f}; "
            "save it smaller or raise max_image_pixels"
        )
