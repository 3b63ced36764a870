"""Image sources into pictures: bytes, files, PIL images and arrays become upright RGB.

Two steps, so that the size can be known before anything is decoded::

    opened = open_image("receipt.jpg")             # reads the header: size, format, key
    picture = decode(opened, at_least=(896, 672))  # a JPEG is decoded no larger than useful

Colour profiles are not applied, as in the checkpoints' own preprocessing.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import PIL.Image
from numpy.typing import NDArray
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from qwink.errors import ImageError, ImageTooLarge
from qwink.types import Picture

MAX_IMAGE_PIXELS = 64_000_000
MAX_FILE_BYTES = 1 << 30

# Readers are called directly, not through `PIL.Image.open`: that one applies a limit kept in a
# global of the user's process, and tries formats we do not want to expose. (The readers of WebP
# and TIFF apply that limit all the same; it is 89 megapixels unless the user set it.)
_READERS: dict[str, type[ImageFile]] = {
    "JPEG": JpegImageFile,
    "PNG": PngImageFile,
    "WebP": WebPImageFile,
    "GIF": GifImageFile,
    "BMP": BmpImageFile,
    "TIFF": TiffImageFile,
}
SUPPORTED_FORMATS = tuple(_READERS)

_SIGNATURES = (
    (0, b"\xff\xd8\xff", "JPEG"),
    (0, b"\x89PNG\r\n\x1a\n", "PNG"),
    (8, b"WEBP", "WebP"),
    (0, b"GIF87a", "GIF"),
    (0, b"GIF89a", "GIF"),
    (0, b"BM", "BMP"),
    (0, b"II*\0", "TIFF"),
    (0, b"MM\0*", "TIFF"),
    (0, b"II+\0", "TIFF"),
    (0, b"MM\0+", "TIFF"),
)
# What people hand over by mistake: naming it beats "cannot identify image file".
_LOOKALIKES = (
    (0, b"%PDF", "a PDF; render its pages to PNG first"),
    (4, b"ftyphei", "a HEIC photo"),
    (4, b"ftyphev", "a HEIC photo"),
    (4, b"ftypmif1", "a HEIC photo"),
    (4, b"ftypavi", "an AVIF picture"),
    (4, b"ftyp", "a video"),
    (0, b"\x1aE\xdf\xa3", "a video"),
    (4, b"JXL ", "a JPEG XL picture"),
    (0, b"\xff\x0a", "a JPEG XL picture"),
    (4, b"jP  ", "a JPEG 2000 picture"),
    (0, b"\0\0\1\0", "an icon (ICO)"),
    (0, b"8BPS", "a Photoshop file"),
    (0, b"PK\3\4", "a ZIP archive or an office document"),
    (0, b"\x1f\x8b", "a gzip archive"),
)

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


@dataclass(frozen=True, slots=True, eq=False)
class OpenedImage:
    """An image whose header has been read and found acceptable; `decode` makes the pixels.

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
    """Read a file's header, or take over the pixels of a PIL image or array.

    Arrays are uint8 [H, W, 3] (RGB), [H, W, 4] (RGBA) or [H, W] (grey); they are copied.

    Raises ImageTooLarge for more than `max_image_pixels` (width × height), before decoding, and
    ImageError for whatever cannot be read, is no picture or of an unsupported format.
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
    """Decode to upright RGB; transparency is laid on white, the first frame or page is taken.

    `at_least` is (width, height), upright. A JPEG is then decoded at ½, ¼ or ⅛ of its size where
    both sides stay at least this long; other formats are decoded whole. Twice the size wanted
    leaves the final resample as good as from all pixels (PSNR 46 dB).

    Raises ImageError for a damaged or truncated file.
    """
    if isinstance(opened.content, np.ndarray):
        return Picture(opened.content, opened.key, opened.size, opened.warnings)
    with _errors_of_pillow(opened.name, opened.format):
        image = _READERS[opened.format](io.BytesIO(opened.content))
        if at_least is not None and isinstance(image, JpegImageFile):
            width, height = max(1, at_least[0]), max(1, at_least[1])
            turned = opened.orientation >= 5
            image.draft(None, (height, width) if turned else (width, height))
        image.load()
        rgb, notes = _to_rgb(image)
        pixels = _upright_pixels(rgb, opened.orientation)
    return Picture(pixels, opened.key, opened.size, opened.warnings + notes)


def _open_bytes(data: bytes, name: str, max_image_pixels: int) -> OpenedImage:
    if not data:
        raise ImageError(f"{name} is empty (0 bytes); save or download it again")
    kind = _identify(data, name)
    with _errors_of_pillow(name, kind):
        image = _READERS[kind](io.BytesIO(data))
        _check_size(image.size, name, max_image_pixels)
        animated = bool(getattr(image, "is_animated", False))
        orientation = _orientation(image, data)
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
    with _errors_of_pillow(name, image.format or "PIL"):
        image.load()  # first: TIFF is turned upright and PNG finds late EXIF while loading
        orientation = _orientation_of(image)
        rgb, notes = _to_rgb(image)
        return _pixels_opened(_upright_pixels(rgb, orientation), name, notes)


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
    rgb, _ = _to_rgb(PIL.Image.fromarray(np.ascontiguousarray(array)))
    return _pixels_opened(_upright_pixels(rgb, orientation=1), "the array")


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
    """SHA-256 in hex. The domain keeps a file from ever sharing a key with pixels."""
    digest = hashlib.sha256(b"qwink %s\0" % domain)
    digest.update(content)
    return digest.hexdigest()


def _read_file(path: str | os.PathLike[str], name: str) -> bytes:
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            limit = MAX_FILE_BYTES  # also bounds pipes and devices, which have no size
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


def _identify(data: bytes, name: str) -> str:
    for offset, signature, kind in _SIGNATURES:
        if data.startswith(signature, offset):
            return kind
    looks = next((what for at, sign, what in _LOOKALIKES if data.startswith(sign, at)), None)
    looks = looks or _looks_like_text(data[:1024])
    supported = f"{', '.join(SUPPORTED_FORMATS[:-1])} and {SUPPORTED_FORMATS[-1]}"
    what = f"looks like {looks}" if looks else "is no picture of a known format"
    raise ImageError(f"{name} {what}; supported are {supported}")


def _looks_like_text(head: bytes) -> str | None:
    try:
        text = head.decode("utf-8-sig", errors="ignore" if len(head) == 1024 else "strict").lower()
    except UnicodeDecodeError:
        return None
    if "<svg" in text:
        return "an SVG drawing; render it to PNG first"
    if "<html" in text or "<!doctype html" in text:
        return "a web page (HTML)"
    return "text" if all(char.isprintable() or char.isspace() for char in text) else None


def _check_size(size: tuple[int, int], name: str, max_image_pixels: int) -> None:
    width, height = size
    if width * height > max_image_pixels:
        raise ImageTooLarge(
            f"{name} has {width}×{height} = {width * height / 1e6:.1f} megapixels, "
            f"more than the limit of {max_image_pixels / 1e6:.1f}; "
            "save it smaller or raise max_image_pixels"
        )


def _orientation(image: ImageFile, data: bytes) -> int:
    """EXIF orientation, 1 to 8, from the header alone."""
    if isinstance(image, TiffImageFile):
        return 1  # Pillow itself turns TIFF upright, size and pixels
    if isinstance(image, PngImageFile) and "exif" not in image.info:
        exif = _exif_chunk(data)
        if exif:
            image.info["exif"] = b"Exif\0\0" + exif
    return _orientation_of(image)


def _orientation_of(image: PIL.Image.Image) -> int:
    try:
        # The base class's method: PNG's own would decode the picture in search of EXIF.
        value = PIL.Image.Image.getexif(image).get(_ORIENTATION_TAG, 1)
    except Exception:  # damaged EXIF is no reason to refuse sound pixels
        return 1
    return int(value) if value in _UPRIGHT else 1


def _exif_chunk(png: bytes) -> bytes | None:
    """The eXIf chunk, which may also follow the pixels, where Pillow's header pass ends."""
    at = 8
    while at + 8 <= len(png):
        length = int.from_bytes(png[at : at + 4], "big")
        if png[at + 4 : at + 8] == b"eXIf":
            return png[at + 8 : at + 8 + length]
        at += length + 12
    return None


def _upright_pixels(rgb: PIL.Image.Image, orientation: int) -> NDArray[np.uint8]:
    if orientation in _UPRIGHT:
        rgb = rgb.transpose(_UPRIGHT[orientation])
    return np.asarray(rgb, dtype=np.uint8)


def _to_rgb(image: PIL.Image.Image) -> tuple[PIL.Image.Image, tuple[str, ...]]:
    notes: tuple[str, ...] = ()
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        image, notes = _to_8_bits(image)
    if image.mode == "La":
        image = image.convert("LA")  # there is no direct way to RGBA
    if image.has_transparency_data:
        image = image.convert("RGBA")
        canvas = PIL.Image.new("RGB", image.size, "white")
        canvas.paste(image, mask=image.getchannel("A"))
        return canvas, notes
    return (image if image.mode == "RGB" else image.convert("RGB")), notes


def _to_8_bits(image: PIL.Image.Image) -> tuple[PIL.Image.Image, tuple[str, ...]]:
    """Grey of 16 or 32 bits to 8, scaled where Pillow's own conversion would clip."""
    values = np.asarray(image)
    notes: tuple[str, ...] = ()
    if image.mode.startswith("I;16"):
        grey = ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)  # rounds x / 257
    else:
        values = np.nan_to_num(values.astype(np.float32), posinf=0.0, neginf=0.0)
        low, high = float(values.min()), float(values.max())
        # The smallest customary range that holds the values; floats may be 0..1.
        ranges = (1.0, 255.0, 65535.0) if image.mode == "F" else (255.0, 65535.0)
        top = next((top for top in ranges if low >= 0 and high <= top), None)
        if top is None:
            notes = (f"pixel values from {low:g} to {high:g} were stretched to 0..255",)
        else:
            low, high = 0.0, top
        grey = np.rint((values - low) * (255.0 / max(high - low, 1e-30))).astype(np.uint8)
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):
        grey[values == transparent] = 255
    return PIL.Image.fromarray(grey), notes


@contextmanager
def _errors_of_pillow(name: str, kind: str) -> Iterator[None]:
    """Pillow raises SyntaxError, OSError, ValueError, struct.error, EOFError and more."""
    try:
        yield
    except ImageError:
        raise
    except PIL.Image.DecompressionBombError as error:  # some readers check it by themselves
        raise ImageTooLarge(
            f"{name} has more pixels than twice PIL.Image.MAX_IMAGE_PIXELS; save it smaller"
        ) from error
    except MemoryError as error:
        raise ImageError(f"not enough memory to decode {name}; save it smaller") from error
    except Exception as error:
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise ImageError(
            f"cannot decode {name} as {kind}: {why}; "
            "it is damaged, cut short or of a rare kind: save or download it again"
        ) from error
