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
import stat
from dataclasses import dataclass, field

import numpy as np
import PIL.Image
from numpy.typing import NDArray
from PIL.JpegImagePlugin import JpegImageFile

from qwink.errors import ImageError, ImageTooLarge
from qwink.inputs.formats import READERS, errors_of_pillow, identify
from qwink.inputs.upright import orientation_of, orientation_of_file, to_rgb, upright_pixels
from qwink.types import Picture

MAX_IMAGE_PIXELS = 64_000_000
MAX_FILE_BYTES = 1 << 30


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
    content: bytes | NDArray[np.uint8] = field(default=b"", repr=False)


def open_image(
    source: bytes | str | os.PathLike[str] | PIL.Image.Image | NDArray[np.uint8],
    max_image_pixels: int = MAX_IMAGE_PIXELS,
) -> OpenedImage:
    """Read a file's header, or copy the pixels of a PIL image or array.

    Arrays are uint8 [H, W, 3] (RGB), [H, W, 4] (RGBA) or [H, W] (grey).

    Raises ImageTooLarge for more than `max_image_pixels` (width × height), before decoding, and
    ImageError for anything that cannot be read or is not a picture of a supported format.
    """
    if isinstance(source, np.ndarray):
        return _open_array(source, max_image_pixels)
    if isinstance(source, PIL.Image.Image):
        return _open_pil(source, max_image_pixels)
    if isinstance(source, bytes | bytearray | memoryview):
        return _open_bytes(bytes(source), "the image", max_image_pixels)
    if isinstance(source, str | os.PathLike):
        name = repr(os.fspath(source))
        return _open_bytes(_read_file(source, name), name, max_image_pixels)
    raise ImageError(
        f"cannot make a picture of {type(source).__name__}; "
        "give a path, bytes, a PIL image or a uint8 array"
    )


def decode(opened: OpenedImage, at_least: tuple[int, int] | None = None) -> Picture:
    """Decode the first frame or page to upright RGB, transparent parts on white.

    `at_least` is (width, height), upright. A JPEG is then decoded at ½, ¼ or ⅛ of its size where
    both sides stay at least this long; other formats are decoded at full size. With twice the
    final size, the final resample is as good as from all pixels (PSNR 46 dB).

    Raises ImageError for a damaged or truncated file.
    """
    if isinstance(opened.content, np.ndarray):
        return Picture(opened.content, opened.key, opened.size, opened.warnings)
    with errors_of_pillow(opened.name, opened.format):
        image = READERS[opened.format](io.BytesIO(opened.content))
        if at_least is not None and isinstance(image, JpegImageFile):
            width, height = max(1, at_least[0]), max(1, at_least[1])
            turned = opened.orientation >= 5
            image.draft(None, (height, width) if turned else (width, height))
        image.load()
        rgb, notes = to_rgb(image)
        pixels = upright_pixels(rgb, opened.orientation)
    return Picture(pixels, opened.key, opened.size, opened.warnings + notes)


def _open_bytes(data: bytes, name: str, max_image_pixels: int) -> OpenedImage:
    if not data:
        raise ImageError(f"{name} is empty (0 bytes); save or download it again")
    kind = identify(data, name)
    with errors_of_pillow(name, kind):
        image = READERS[kind](io.BytesIO(data))
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
        content=data,
    )


def _open_pil(image: PIL.Image.Image, max_image_pixels: int) -> OpenedImage:
    name = "the PIL image"
    if 0 in image.size:
        raise ImageError(f"{name} has no pixels (size {image.width}×{image.height})")
    _check_size(image.size, name, max_image_pixels)
    with errors_of_pillow(name, image.format or "PIL"):
        image.load()  # first, since it turns TIFF upright and finds late EXIF in PNG
        orientation = orientation_of(image)
        rgb, notes = to_rgb(image)
        return _pixels_opened(upright_pixels(rgb, orientation), name, notes)


def _open_array(array: NDArray[np.uint8], max_image_pixels: int) -> OpenedImage:
    shape = array.shape
    channels_last = len(shape) == 2 or (len(shape) == 3 and shape[2] in (3, 4))
    if array.dtype != np.uint8 or not channels_last or 0 in shape:
        raise ImageError(
            f"cannot use an array of {array.dtype} {list(shape)} as a picture; "
            "give uint8 in 0..255 of shape [height, width, 3], [.., .., 4] or [height, width]"
        )
    _check_size((shape[1], shape[0]), "the array", max_image_pixels)
    if len(shape) == 3 and shape[2] == 3:
        return _pixels_opened(array.copy(order="C"), "the array")
    rgb, _ = to_rgb(PIL.Image.fromarray(np.ascontiguousarray(array)))
    return _pixels_opened(upright_pixels(rgb, orientation=1), "the array")


def _pixels_opened(
    pixels: NDArray[np.uint8], name: str, warnings: tuple[str, ...] = ()
) -> OpenedImage:
    pixels.flags.writeable = False
    height, width, _ = pixels.shape
    return OpenedImage(
        size=(width, height),
        format="pixels",
        key=_key(b"pixels %d %d" % (width, height), pixels.data),
        warnings=warnings,
        name=name,
        content=pixels,
    )


def _key(domain: bytes, content: bytes | memoryview) -> str:
    """SHA-256 in hex. The domain keeps the keys of files and of pixels apart."""
    digest = hashlib.sha256(b"qwink %s\0" % domain)
    digest.update(content)
    return digest.hexdigest()


def _read_file(path: str | os.PathLike[str], name: str) -> bytes:
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            limit = MAX_FILE_BYTES  # pipes and devices have no size
            if stat.S_ISREG(status.st_mode):
                limit = min(limit, status.st_size)
            data = file.read(limit + 1)
    except FileNotFoundError:
        raise ImageError(f"no such file: {name}; check the path") from None
    except IsADirectoryError:
        raise ImageError(f"{name} is a folder; name a picture in it") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ImageError(f"cannot read {name}: {why}") from error
    if len(data) > MAX_FILE_BYTES:
        raise ImageTooLarge(f"{name} has more than {MAX_FILE_BYTES >> 20} MiB; save it smaller")
    return data


def _check_size(size: tuple[int, int], name: str, max_image_pixels: int) -> None:
    width, height = size
    if width * height > max_image_pixels:
        raise ImageTooLarge(
            f"{name} has {width}×{height} = {width * height / 1e6:.1f} megapixels, "
            f"more than the limit of {max_image_pixels / 1e6:.1f}; "
            "save it smaller or raise max_image_pixels"
        )
