"""A file being downloaded, and the check of its size and digest."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from types import TracebackType

from qwink.hub.http import Interrupted
from qwink.hub.listing import RemoteFile

_READ_BYTES = 1 << 20


class Partial:
    """A partly downloaded file and the digest of its bytes so far. Writes are unbuffered.

    Use it as a context manager. The file's name contains the digest of the complete file, or its
    size if the hub gives no digest.
    """

    def __init__(self, folder: Path, file: RemoteFile) -> None:
        self.file = file
        self.num_bytes = 0
        self._folder, self._path = folder, self.path(folder, file)

    @staticmethod
    def path(folder: Path, file: RemoteFile) -> Path:
        content = file.digest[:16] if file.digest.isalnum() else file.num_bytes
        return folder / f"{file.name}.{content}.part"

    def __enter__(self) -> Partial:
        self._target = self._path.open("a+b", buffering=0)
        self._target.seek(0)
        self._hash = _new_hash(self.file)
        while chunk := self._target.read(_READ_BYTES):
            self._hash.update(chunk)
            self.num_bytes += len(chunk)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._target.close()

    def write(self, chunk: bytes) -> None:
        """Append bytes. Raises Interrupted if the file becomes longer than the hub announced."""
        if self.num_bytes + len(chunk) > self.file.num_bytes:
            self.restart()
            raise Interrupted("the file is longer than the hub announced")
        view = memoryview(chunk)
        while view:  # a write to a nearly full disk may be partial
            view = view[self._target.write(view) :]
        self._hash.update(chunk)
        self.num_bytes += len(chunk)

    def restart(self) -> None:
        """Delete the bytes received so far."""
        self._target.truncate(0)
        self._hash, self.num_bytes = _new_hash(self.file), 0

    def is_complete(self) -> bool:
        """Whether size and digest are those that the hub announced."""
        right = self.file.kind is None or self._hash.hexdigest() == self.file.digest.lower()
        return self.num_bytes == self.file.num_bytes and right

    def finish(self) -> None:
        """Rename the complete file to its final name."""
        with self._path.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(self._path, self._folder / self.file.name)


def matches(path: Path, file: RemoteFile) -> bool:
    """Whether the file at `path` has the size and digest of `file`."""
    if not path.is_file() or path.stat().st_size != file.num_bytes:
        return False
    digest = _new_hash(file)
    with path.open("rb") as source:
        while chunk := source.read(_READ_BYTES):
            digest.update(chunk)
    return file.kind is None or digest.hexdigest() == file.digest.lower()


def _new_hash(file: RemoteFile) -> hashlib._Hash:
    if file.kind == "git":  # the header that Git hashes before the content
        return hashlib.sha1(b"blob %d\0" % file.num_bytes)
    return hashlib.sha256()
