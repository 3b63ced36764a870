"""A file's format from its first bytes, and Pillow's reader for each supported format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import PIL.Image
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from qwink.errors import ImageError, ImageTooLarge

# Readers are called directly. `PIL.Image.open` would apply a limit from a global variable of the
# process and try formats that we do not expose. (The readers of WebP and TIFF apply that limit
# too; it is 89 megapixels unless the user changed it.)
READERS: dict[str, type[ImageFile]] = {
    "JPEG": JpegImageFile,
    "PNG": PngImageFile,
    "WebP": WebPImageFile,
    "GIF": GifImageFile,
    "BMP": BmpImageFile,
    "TIFF": TiffImageFile,
}
SUPPORTED_FORMATS = tuple(READERS)

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
# Other files that people give by mistake, so that the message can name them.
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


def identify(data: bytes, name: str) -> str:
    """One of SUPPORTED_FORMATS. Raises ImageError, saying what else the file `name` looks like."""
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


@contextmanager
def errors_of_pillow(name: str, kind: str) -> Iterator[None]:
    """Turn any exception of Pillow into an ImageError; it raises SyntaxError, OSError and more."""
    try:
        yield
    except ImageError:
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
