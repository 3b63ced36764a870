"""Encoded images on disk: they survive the process, and several processes share them.

One file an image, in folders two levels deep. A file is written under a temporary name and then
renamed, so a reader sees a whole file or none. Anything under an entry's name that is not the
expected image, such as a damaged, truncated or crafted file, a link or a folder, is removed, and
the image is encoded again.

Writers hold one lock while they make room and write. So a temporary file that a lock's holder
finds belongs to a writer that died. Files are not flushed to the medium: after a power failure
the checksum reveals a lost write.

Where the store cannot read or write, it logs that once and acts as if it were empty.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from qwink.cache.embeddings import Expected, as_float16
from qwink.cache.entry import Unusable, file_size, is_finite, pack, read, unpack
from qwink.types import EncodedImage

_LOG = logging.getLogger(__name__)

_SUFFIX, _TEMPORARY = ".qwink", ".tmp"
_LOCK = ".lock"
# Short: a stopped process that holds the lock must not delay other processes for long.
_LOCK_PATIENCE_S = 1.0
_LOCK_POLL_S = 0.005
# Opening an entry fails with these if it, or one of its folders, is no file or folder of ours.
_FOREIGN = frozenset(
    {errno.EACCES, errno.EISDIR, errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EPERM}
)


class DiskStore:
    """Keeps the images used last, up to `max_bytes` of files together. Safe to share.

    `num_bytes` is the size of all entries when this process last wrote one, or opened the store.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder, self.max_bytes = folder, max_bytes
        self.hits = self.misses = self.evictions = self.dropped = self.num_bytes = 0
        self._counting = threading.Lock()
        self._lock = FileLock(folder / _LOCK)
        self._complained = False
        try:
            with self._exclusive():
                self._make_room(0)
        except Timeout:
            pass  # the next writer makes room
        except OSError as error:
            self._complain("open", error)

    def get(self, expected: Expected) -> EncodedImage | None:
        """The image, its arrays float16 and read-only; None if it is missing or was unusable."""
        path = self._path(expected.key)
        image = None
        try:
            image = unpack(read(path, file_size(expected)), expected)
        except FileNotFoundError:
            pass
        except Unusable:
            self._drop(path)
        except OSError as error:
            if error.errno in _FOREIGN:
                self._drop(path)
            else:
                self._complain("read", error)
        if image is None:
            self._count(misses=1)
            return None
        self._count(hits=1)
        with suppress(OSError):  # evicted in the meantime, or a read-only folder
            os.utime(path)
        return image

    def put(self, image: EncodedImage) -> None:
        """Keep an image. Never raises.

        Does not keep an image larger than the store, one with NaN or infinite values, or one
        for which the lock was not free in time.
        """
        if image.embeds.dtype != np.float16 or image.deepstack.dtype != np.float16:
            image = as_float16(image)
        if not (is_finite(image.embeds) and is_finite(image.deepstack)):
            return
        content = pack(image)
        size = sum(len(part) for part in content)
        if size > self.max_bytes:
            return
        path = self._path(image.key)
        temporary = path.with_name(f"{path.stem}.{os.urandom(8).hex()}{_TEMPORARY}")
        try:
            with self._exclusive():
                if not self._make_room(size, spared=path):
                    return
                _clear(path)
                path.parent.mkdir(parents=True, exist_ok=True)
                try:
                    with temporary.open("xb") as file:
                        file.writelines(content)
                    os.replace(temporary, path)
                finally:
                    temporary.unlink(missing_ok=True)
                self.num_bytes += size
        except Timeout:
            pass  # only costs encoding the image again
        except OSError as error:
            self._complain("write", error)

    def _path(self, key: str) -> Path:
        name = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
        return self.folder / name[:2] / name[2:4] / f"{name[4:]}{_SUFFIX}"

    def _make_room(self, size: int, spared: Path | None = None) -> bool:
        """Remove the entries used longest ago until `size` bytes fit, and temporary files.

        Returns whether they fit: some files may not be ours to remove. The caller holds the lock.
        `spared` is about to be replaced: it counts neither as an entry nor as evicted.
        """
        entries = []
        total = 0
        for path in _files(self.folder):
            with suppress(OSError):  # removed in the meantime, or not ours to remove
                if path.suffix == _TEMPORARY:
                    path.unlink()
                elif path.suffix == _SUFFIX and path != spared:
                    status = path.lstat()
                    entries.append((status.st_mtime_ns, path, status.st_size))
                    total += status.st_size
        entries.sort(reverse=True)
        while entries and total + size > self.max_bytes:
            _, path, num_bytes = entries.pop()
            with suppress(OSError):
                if _remove(path):
                    self._count(evictions=1)
                total -= num_bytes
        self.num_bytes = total
        return total + size <= self.max_bytes

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Hold the lock that lets one thread of all processes add and remove entries.

        Raises Timeout if it was not free in time, another OSError if it cannot be taken at all.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(timeout=_LOCK_PATIENCE_S, poll_interval=_LOCK_POLL_S)
        except NotImplementedError as error:
            raise OSError(errno.ENOSYS, str(error)) from error
        try:
            yield
        finally:
            self._lock.release()

    def _drop(self, path: Path) -> None:
        """Remove what is under an entry's name."""
        try:
            if _clear(path, whole=True):
                self._count(dropped=1)
                _LOG.warning(
                    "removed %s: it is damaged or of another kind; the image will be encoded again",
                    path,
                )
        except OSError as error:
            self._complain("clean", error)

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
                "cannot %s the image cache %s: %s; images will be encoded again; "
                "set QWINK_HOME to another folder to keep them",
                action,
                self.folder,
                error.strerror or error,
            )


def _files(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, name) for name in names)


def _clear(path: Path, whole: bool = False) -> bool:
    """Remove what keeps an entry from being written at `path`, or with `whole` the entry too.

    Returns whether there was anything to remove. Raises OSError.
    """
    for parent in (path.parent.parent, path.parent):
        if parent.is_symlink() or (parent.exists() and not parent.is_dir()):
            parent.unlink()
            return True
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
        return True
    return whole and _remove(path)


def _remove(path: Path) -> bool:
    """Remove a file or link. False if it is gone already; raises other OSErrors."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True
