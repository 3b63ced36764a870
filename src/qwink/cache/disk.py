"""Encoded images on disk: they outlive the process and are shared by several.

One file an image, float16, in folders two levels deep. A file appears whole or not at all, and
its checksum covers every byte, so that whatever was cut short, damaged or put there by someone
else is found out, removed and encoded again. The store only ever saves time: where it cannot
write or read, it says so once in the log and does without.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from qwink.cache.embeddings import as_float16
from qwink.types import EncodedImage, Grid

if sys.platform == "win32":

    def _try_lock(file: BinaryIO) -> bool:
        """There is no flock."""
        raise OSError("no locks")

else:
    import fcntl

    def _try_lock(file: BinaryIO) -> bool:
        """Take the file's lock, which its closing or the process's end gives back.

        False if another holds it. Raises OSError where there are no locks.
        """
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


_LOG = logging.getLogger(__name__)

# A file: magic, checksum of all that follows, length of the header, header (JSON, padded so that
# the arrays are aligned), embeds, deepstack. Numbers are little-endian.
_MAGIC = b"QWINKEI1"
_CHECKSUM_BYTES = 32
_ALIGNMENT = 64
_START = len(_MAGIC) + _CHECKSUM_BYTES
_SUFFIX, _TEMPORARY = ".qwink", ".tmp"
_LOCK = ".lock"
_LOCK_PATIENCE_S = 1.0
# Without locks one cannot tell whether a temporary file's writer lives; one this old has none.
_ABANDONED_S = 3600.0


class DiskStore:
    """Keeps the images used last, up to `max_bytes` of files together. Safe to share.

    `num_bytes` is the size of all entries when this process last wrote one, or opened the store.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder, self.max_bytes = folder, max_bytes
        self.hits = self.misses = self.evictions = self.dropped = self.num_bytes = 0
        self._counting = threading.Lock()
        self._evicting = threading.Lock()
        self._complained = False
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with self._exclusive() as mine:
                if mine:
                    self._make_room(0)
        except OSError as error:
            self._complain("open", error)

    def get(self, key: str) -> EncodedImage | None:
        """The image, its arrays float16 and read-only; None if it is not here or was damaged."""
        path = self._path(key)
        try:
            if path.stat().st_size > self.max_bytes:  # not ours, or of a larger store
                raise ValueError("too large")
            image = _unpack(path.read_bytes(), key)
        except FileNotFoundError:
            image = None
        except OSError as error:
            self._complain("read", error)
            image = None
        except (ValueError, TypeError, KeyError):
            self._drop(path)
            image = None
        if image is None:
            self._count(misses=1)
            return None
        self._count(hits=1)
        with suppress(OSError):  # evicted meanwhile, or a read-only folder
            os.utime(path)
        return image

    def put(self, image: EncodedImage) -> None:
        """Keep an image. Never raises; one larger than the whole store is not kept."""
        content = _pack(image)
        size = sum(len(part) for part in content)
        if size > self.max_bytes:
            return
        path = self._path(image.key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._temporary(path) as (file, temporary):
                for part in content:
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
                with self._exclusive() as mine:
                    if mine:
                        self._make_room(size, spared=path)
                        file.close()  # Windows renames no open file
                        os.replace(temporary, path)
                        self.num_bytes += size
        except OSError as error:
            self._complain("write", error)

    def _path(self, key: str) -> Path:
        name = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
        return self.folder / name[:2] / name[2:4] / f"{name[4:]}{_SUFFIX}"

    def _make_room(self, size: int, spared: Path | None = None) -> None:
        """Remove the entries used longest ago until `size` bytes fit; and abandoned files.

        `spared` is about to be replaced: it goes without being counted as evicted.
        """
        entries = []
        total = 0
        for path in _files(self.folder):
            try:
                status = path.stat()
            except OSError:  # another process was faster
                continue
            if path.suffix == _TEMPORARY:
                _remove_if_abandoned(path, status.st_mtime)
            elif path.suffix == _SUFFIX and path != spared:
                entries.append((status.st_mtime_ns, path, status.st_size))
                total += status.st_size
        entries.sort(reverse=True)
        while entries and total + size > self.max_bytes:
            _, path, num_bytes = entries.pop()
            if _removed(path):
                self._count(evictions=1)
            total -= num_bytes
        self.num_bytes = total

    @contextmanager
    def _exclusive(self) -> Iterator[bool]:
        """Whether this thread alone, of all processes, may now change which entries there are.

        Patience is short: a process that was stopped must not hold up everybody's answers.
        """
        if not self._evicting.acquire(timeout=_LOCK_PATIENCE_S):
            yield False
            return
        try:
            with (self.folder / _LOCK).open("ab") as file:
                yield _lock(file)
        finally:
            self._evicting.release()

    @contextmanager
    def _temporary(self, path: Path) -> Iterator[tuple[BinaryIO, Path]]:
        """A new file beside `path`. Its lock tells others that its writer lives."""
        temporary = path.with_name(f"{path.stem}.{os.urandom(8).hex()}{_TEMPORARY}")
        try:
            # Made and locked while nobody cleans up, but written while others go on.
            with self._exclusive():
                file = temporary.open("xb")
                with suppress(OSError):
                    _try_lock(file)
            with file:
                yield file, temporary
        finally:
            _removed(temporary)

    def _drop(self, path: Path) -> None:
        if _removed(path):
            self._count(dropped=1)
            _LOG.warning("removed %s: damaged or foreign; it is encoded again", path)

    def _count(self, hits: int = 0, misses: int = 0, evictions: int = 0, dropped: int = 0) -> None:
        with self._counting:
            self.hits += hits
            self.misses += misses
            self.evictions += evictions
            self.dropped += dropped

    def _complain(self, action: str, error: OSError) -> None:
        if not self._complained:
            self._complained = True
            _LOG.warning(
                "cannot %s the image cache %s: %s; going on without what it would save",
                action,
                self.folder,
                error.strerror or error,
            )


def _lock(file: BinaryIO) -> bool:
    """Wait for the file's lock for a while. Where there are no locks, go on without."""
    deadline = time.monotonic() + _LOCK_PATIENCE_S
    with suppress(OSError):
        while not _try_lock(file):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.002)
    return True


def _pack(image: EncodedImage) -> list[bytes | memoryview]:
    """A file's content, in pieces."""
    if image.embeds.dtype != np.float16 or image.deepstack.dtype != np.float16:
        image = as_float16(image)
    header = json.dumps(
        {
            "key": image.key,
            "grid": [image.grid.t, image.grid.h, image.grid.w],
            "embeds": image.embeds.shape,
            "deepstack": image.deepstack.shape,
        }
    ).encode()
    header += b" " * (-(_START + 4 + len(header)) % _ALIGNMENT)
    arrays = [np.ascontiguousarray(array, "<f2") for array in (image.embeds, image.deepstack)]
    # Reshaped, since an empty array has no view as bytes.
    parts = [len(header).to_bytes(4, "little") + header]
    parts += [array.reshape(-1).view(np.uint8).tobytes() for array in arrays]
    checksum = hashlib.blake2b(digest_size=_CHECKSUM_BYTES)
    for part in parts:
        checksum.update(part)
    return [_MAGIC + checksum.digest(), *parts]


def _unpack(data: bytes, key: str) -> EncodedImage:
    """What `_pack` packed. Raises ValueError, TypeError or KeyError for anything else."""
    body = memoryview(data)[_START:]
    checksum = hashlib.blake2b(body, digest_size=_CHECKSUM_BYTES).digest()
    if data[:_START] != _MAGIC + checksum:
        raise ValueError("damaged")
    start = 4 + int.from_bytes(body[:4], "little")
    header: dict[str, Any] = json.loads(bytes(body[4:start]))
    if header["key"] != key:
        raise ValueError("another image's")
    grid = Grid(*(int(size) for size in header["grid"]))
    values: NDArray[np.float16] = np.frombuffer(body[start:], "<f2")
    embeds, deepstack = tuple(header["embeds"]), tuple(header["deepstack"])
    split = int(np.prod(embeds, dtype=np.int64))
    if len(embeds) != 2 or len(deepstack) != 3 or min(embeds + deepstack) < 0:
        raise ValueError("of another shape")
    return EncodedImage(
        values[:split].reshape(embeds), values[split:].reshape(deepstack), grid, key
    )


def _files(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, name) for name in names)


def _remove_if_abandoned(path: Path, changed: float) -> None:
    try:
        with path.open("rb") as file:
            abandoned = _try_lock(file)
    except OSError:
        abandoned = time.time() - changed > _ABANDONED_S
    if abandoned:
        _removed(path)


def _removed(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:  # gone already, or not ours to remove
        return False
    return True
