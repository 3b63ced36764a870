"""Pictures as the command line names them: paths, data URLs, named pipes, - for stdin."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from qwink.errors import ImageError, ImageTooLarge, OptionError

PICTURE_SUFFIXES = (
    *(".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"),
    *(".avif", ".heic", ".heif", ".mp4", ".mov", ".mkv", ".webm", ".avi"),
)


def check_options(sampling: dict[str, Any], sizes: dict[str, Any]) -> None:
    """Check options before the model is loaded. Raises OptionError."""
    from qwink.engine.sampler import validate
    from qwink.types import SamplingParams

    validate(SamplingParams(**sampling))
    limit = sizes.get("max_image_pixels", 1)
    if limit < 1:
        raise OptionError(f"max_image_pixels is {limit}; it must be 1 or more")


def check_sources(sources: list[str], sizes: dict[str, Any]) -> None:
    """Check pictures before the model is loaded. Raises ImageError, OptionError."""
    from qwink.inputs.containers import is_video
    from qwink.inputs.images import MAX_IMAGE_PIXELS, open_image
    from qwink.inputs.video import open_video

    limit = sizes.get("max_image_pixels", MAX_IMAGE_PIXELS)
    if sources.count("-") > 1:
        raise OptionError("stdin holds one picture; give - once")
    if "-" in sources and sys.stdin is not None and sys.stdin.isatty():
        raise OptionError("- reads a picture from stdin; pipe one in: qwink ask - < photo.jpg")
    for source in sources:
        # A named pipe, such as the shell's <(...), can be read only once.
        if ":" not in source[:8] and source != "-" and not _is_pipe(source):
            try:
                if is_video(source):
                    open_video(source, limit)
                else:
                    open_image(source, limit)
            except ImageError as error:
                hint = _question_hint(source, sources)
                raise ImageError(f"{error}; {hint}") if hint else error from None


def _is_pipe(source: str) -> bool:
    try:
        return Path(source).is_fifo()
    except (OSError, ValueError):  # no path, such as a text that is too long
        return False


def _question_hint(source: str, sources: list[str]) -> str:
    """How to give the question, if `source` looks like one and is no file."""
    looks = " " in source.strip() or source.rstrip().endswith(("?", "\uff1f"))
    if not looks or Path(source).suffix.lower() in PICTURE_SUFFIXES or len(source) > 500:
        return ""
    pictures = " ".join(shlex.quote(other) for other in sources if other != source)
    return f"a question goes behind -q: qwink ask {pictures or 'IMAGE'} -q {shlex.quote(source)}"


def read_streams(sources: list[str], *, pipes: bool = False) -> list[str | bytes]:
    """The sources, with - replaced by the bytes on stdin; with `pipes`, named pipes by theirs."""

    return [_content(source, pipes) for source in sources]


def _content(source: str, pipes: bool) -> str | bytes:
    from qwink.inputs.files import read_path

    if source == "-":
        return _stdin_bytes()
    return read_path(source) if pipes and _is_pipe(source) else source


def _stdin_bytes() -> bytes:
    from qwink.inputs.files import MAX_FILE_BYTES

    if sys.stdin is None:
        raise OptionError("- reads a picture from stdin, which is closed")
    data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ImageTooLarge(f"stdin has more than {MAX_FILE_BYTES >> 20} MiB; reduce the picture")
    return data
