"""Bytes of picture files: from paths and file objects, with messages that repeat no payload."""

from __future__ import annotations

import os
import re
import stat
from typing import Any, Protocol, runtime_checkable

from qwink.errors import ImageError, ImageTooLarge

MAX_FILE_BYTES = 1 << 30

_LONGEST_NAME = 200  # characters of a path that a message repeats
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{64,}={0,2}")
# How JPEG, PNG, GIF, WebP and BMP begin in base64.
_BASE64_PICTURES = ("/9j/", "iVBORw0KGgo", "R0lGOD", "UklGR", "Qk0", "Qk1")


@runtime_checkable
class BinaryFile(Protocol):
    """A file object opened for reading bytes."""

    def read(self, size: int = -1, /) -> bytes: ...


def spelled(path: str | os.PathLike[str] | bytes) -> str:
    """A path as messages repeat it: quoted, and shortened if it is long."""
    name = os.fsdecode(path)
    if len(name) > _LONGEST_NAME:
        return f"{name[:60]!r}... ({len(name)} characters)"
    return repr(name)


def read_path(path: str | os.PathLike[str]) -> bytes:
    """The file's bytes. Raises ImageError, which names the path."""
    text = os.fspath(path)
    if isinstance(text, str) and _is_base64(text):
        raise ImageError(
            f"a text of {len(text)} characters in base64 is not a path; write "
            "data:image/png;base64,... or pass the decoded bytes"
        )
    name = spelled(path)
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
    return _checked(data, name)


def read_object(file: BinaryFile) -> bytes:
    """What is left in a file object. Raises ImageError if it gives text or fails."""
    try:
        data: Any = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ImageError(f"cannot read the file object: {error}") from error
    if not isinstance(data, bytes | bytearray | memoryview):
        raise ImageError('the file object gives text; open the file with mode "rb"')
    return _checked(bytes(data), "the file object")


def _checked(data: bytes, name: str) -> bytes:
    if len(data) > MAX_FILE_BYTES:
        raise ImageTooLarge(f"{name} has more than {MAX_FILE_BYTES >> 20} MiB; save it smaller")
    return data


def _is_base64(text: str) -> bool:
    compact = "".join(text.splitlines())
    if not _BASE64.fullmatch(compact):
        return False
    return compact.startswith(_BASE64_PICTURES) or len(compact) > _LONGEST_NAME
