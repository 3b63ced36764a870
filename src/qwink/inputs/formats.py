"""A file's format from its first bytes, and Pillow's reader for each supported format."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager

import PIL.Image
from PIL import features
from PIL.AvifImagePlugin import AvifImageFile
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from qwink.errors import ImageError, ImageTooLarge, QwinkError

# Readers are called directly. `PIL.Image.open` would apply a limit from a global variable of the
# process and try formats that we do not expose. (The readers of WebP and TIFF apply that limit
# too; it is 89 megapixels unless the user changed it.)
_READERS: dict[str, type[ImageFile]] = {
    "JPEG": JpegImageFile,
    "PNG": PngImageFile,
    "WebP": WebPImageFile,
    "GIF": GifImageFile,
    "BMP": BmpImageFile,
    "TIFF": TiffImageFile,
    "AVIF": AvifImageFile,
}
SUPPORTED_FORMATS = (*_READERS, "HEIC")
# Names of files, for choosing pictures from a folder. A file's format depends on its bytes only.
SUFFIXES: dict[str, tuple[str, ...]] = {
    "JPEG": (".jpg", ".jpeg"),
    "PNG": (".png",),
    "WebP": (".webp",),
    "GIF": (".gif",),
    "BMP": (".bmp",),
    "TIFF": (".tif", ".tiff"),
    "AVIF": (".avif",),
    "HEIC": (".heic", ".heif"),
}

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
# Brands of ISO base media files (ISO/IEC 23008-12, AV1 Image File Format).
_BRANDS = {
    "AVIF": {b"avif", b"avis"},
    "HEIC": {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"},
}
_ANY_HEIF = {b"mif1", b"mif2", b"msf1"}  # the codec is named by a compatible brand

# Other files that people give by mistake, so that the message can name them.
_LOOKALIKES = (
    (0, b"%PDF", "a PDF; ask about it, or give one of its pages as a picture"),
    (4, b"ftyp", "a video; ask about it, or give one of its frames"),
    (0, b"\x1aE\xdf\xa3", "a video; ask about it, or give one of its frames"),
    (4, b"JXL ", "a JPEG XL picture"),
    (0, b"\xff\x0a", "a JPEG XL picture"),
    (4, b"jP  ", "a JPEG 2000 picture"),
    (0, b"\0\0\1\0", "an icon (ICO)"),
    (0, b"8BPS", "a Photoshop file"),
    (0, b"PK\3\4", "a ZIP archive or an office document"),
    (0, b"\x1f\x8b", "a gzip archive"),
)


def identify(data: bytes, name: str) -> str:
    """One of SUPPORTED_FORMATS. Raises ImageError, saying what else the file `name` looks like."""
    for offset, signature, kind in _SIGNATURES:
        if data.startswith(signature, offset):
            return kind
    brand = _brand(data)
    if brand is not None:
        return brand
    looks = next((what for at, sign, what in _LOOKALIKES if data.startswith(sign, at)), None)
    looks = looks or _looks_like_text(data[:1024])
    supported = f"{', '.join(SUPPORTED_FORMATS[:-1])} and {SUPPORTED_FORMATS[-1]}"
    what = f"looks like {looks}" if looks else "is not a picture of a known format"
    raise ImageError(f"{name} {what}; supported are {supported}")


def read_header(file: io.BytesIO, kind: str) -> ImageFile:
    """The image of a file of this format, its header read.

    Raises ImageError where the decoder of AVIF or HEIC is not installed.
    """
    if kind == "HEIC":
        return _heif_reader()(file)
    if kind == "AVIF" and not features.check("avif"):
        raise ImageError(
            "this build of Pillow has no AVIF decoder; install Pillow from PyPI, or save the "
            "picture as JPEG or PNG"
        )
    return _READERS[kind](file)


def _heif_reader() -> type[ImageFile]:
    try:
        from pillow_heif import HeifImageFile
    except ImportError:
        raise ImageError(
            "HEIC pictures need pillow-heif; install it (pip install pillow-heif), or save the "
            "picture as JPEG or PNG"
        ) from None
    reader: type[ImageFile] = HeifImageFile
    return reader


def _brand(data: bytes) -> str | None:
    """AVIF or HEIC, if the `ftyp` box at the start of the file names one of its brands."""
    if data[4:8] != b"ftyp":
        return None
    length = min(int.from_bytes(data[:4], "big"), 256)
    major, names = data[8:12], {data[at : at + 4] for at in range(16, length, 4)}
    for kind, brands in _BRANDS.items():
        if major in brands or (major in _ANY_HEIF and names & brands):
            return kind
    return "HEIC" if major in _ANY_HEIF else None


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


@contextmanager
def errors_of_pillow(name: str, kind: str) -> Iterator[None]:
    """Turn any exception of Pillow into an ImageError; it raises SyntaxError, OSError and more."""
    try:
        yield
    except QwinkError:
        raise
    except PIL.Image.DecompressionBombError as error:  # the readers of WebP and TIFF check it
        raise ImageTooLarge(
            f"{name} has more pixels than twice PIL.Image.MAX_IMAGE_PIXELS; save it smaller"
        ) from error
    except MemoryError as error:
        raise ImageError(f"not enough memory to decode {name}; save it smaller") from error
    except Exception as error:
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise ImageError(
            f"cannot decode {name} as {kind}: {why}; "
            "it is damaged, truncated or of an unsupported variant: save or download it again"
        ) from error
