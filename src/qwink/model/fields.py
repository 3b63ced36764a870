"""Reads JSON objects of a checkpoint; errors name the file and the key."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, TypeVar

from qwink.errors import CheckpointError

_Choice = TypeVar("_Choice", bound=str)
_LFS_POINTER = b"version https://git-lfs"


def is_lfs_pointer(start: bytes) -> bool:
    """Whether a file that begins with the bytes `start` is a Git-LFS pointer."""
    return start.startswith(_LFS_POINTER)


class Fields:
    """A JSON object in the file `path`; `prefix` is its key path in the file, for errors."""

    def __init__(self, values: dict[str, Any], path: Path, prefix: str = "") -> None:
        self.values, self.path, self.prefix = values, path, prefix

    @classmethod
    def read(cls, path: Path) -> Fields:
        """The file's top-level object. Raises CheckpointError: no file, or no JSON object in it."""
        try:
            data = path.read_bytes()
        except OSError as error:
            reason = "missing" if isinstance(error, FileNotFoundError) else error.strerror
            raise CheckpointError(f"{path}: {reason}; a checkpoint must have this file") from None
        if is_lfs_pointer(data):
            raise CheckpointError(f"{path}: a Git-LFS pointer, not the file; run 'git lfs pull'")
        try:
            values = json.loads(data)
        except ValueError as error:  # covers bad UTF-8 as well
            raise CheckpointError(f"{path}: not valid JSON: {error}") from None
        if not isinstance(values, dict):
            raise CheckpointError(f"{path}: expected a JSON object, found {type(values).__name__}")
        return cls(values, path)

    def error(self, message: str) -> CheckpointError:
        """A CheckpointError that names this file; the caller raises it."""
        return CheckpointError(f"{self.path}: {message}")

    def has(self, key: str) -> bool:
        """Whether the key exists and is not null."""
        return self.values.get(key) is not None

    def section(self, key: str) -> Fields:
        """The object at `key`. This and all readers below raise CheckpointError."""
        value = self._get(key, None)
        if not isinstance(value, dict):
            raise self._wrong(key, "an object", value)
        return Fields(value, self.path, f"{self.prefix}{key}.")

    def integer(self, key: str, *, default: int | None = None, minimum: int = 1) -> int:
        """A whole number of at least `minimum`; without `default` the key is required."""
        value = self._get(key, default)
        if not _is_integer(value) or value < minimum:
            raise self._wrong(key, f"a whole number of at least {minimum}", value)
        return int(value)

    def number(self, key: str, *, default: float | None = None, allow_zero: bool = False) -> float:
        """A finite number above zero (or zero with `allow_zero`)."""
        value = self._get(key, default)
        if not _is_number(value) or value < 0 or (value == 0 and not allow_zero):
            raise self._wrong(key, f"a number {'of at least' if allow_zero else 'above'} 0", value)
        return float(value)

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false", value)
        return value

    def choice(self, key: str, only: _Choice, *, default: str | None = None) -> _Choice:
        """The string `only`; other values are not supported."""
        value = self._get(key, default)
        if value != only:
            raise self._wrong(key, repr(only), value)
        return only

    def integers(self, key: str, *, length: int | None = None) -> tuple[int, ...]:
        """A list of whole numbers of at least 0."""
        value = self._get(key, None)
        good = isinstance(value, list) and all(_is_integer(item) and item >= 0 for item in value)
        if not good or length not in (None, len(value)):
            wanted = f"{length} whole numbers" if length else "a list of whole numbers"
            raise self._wrong(key, wanted, value)
        return tuple(int(item) for item in value)

    def channels(self, key: str, *, default: float) -> tuple[float, float, float]:
        """Three numbers, one per colour channel."""
        value = self._get(key, [default] * 3)
        if not isinstance(value, list) or len(value) != 3 or not all(map(_is_number, value)):
            raise self._wrong(key, "three numbers", value)
        return float(value[0]), float(value[1]), float(value[2])

    def token_ids(self, key: str) -> tuple[int, ...]:
        """One token id or a list of token ids; empty if the key is missing."""
        if not self.has(key):
            return ()
        if _is_integer(self.values[key]):
            return (self.integer(key, minimum=0),)
        return self.integers(key)

    def _get(self, key: str, default: Any) -> Any:
        value = self.values.get(key)
        if value is not None:
            return value
        if default is None:
            raise self.error(f"{self.prefix}{key} is missing")
        return default

    def _wrong(self, key: str, wanted: str, value: Any) -> CheckpointError:
        return self.error(f"{self.prefix}{key} should be {wanted}, found {_brief(value)}")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _brief(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
