"""A file on its way, and whether it arrived as the hub says it should."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from types import TracebackType

from qwink.hub.http import Interrupted
from qwink.hub.listing import RemoteFile

_READ_BYTES = 1 << 20


class Partial:
    """What is here of a file, and the digest of that. Written as it comes, nothing buffered.

    Use as context manager. The name says which content it will be, by digest or at least size.
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
        self._hash = _start(self.file)
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
        """Append. Raises Interrupted if this is more than the file has."""
        if self.num_bytes + len(chunk) > self.file.num_bytes:
            self.restart()
            raise Interrupted("more came than the hub announced")
        view = memoryview(chunk)
        while view:  # a nearly full disk takes a part
            view = view[self._target.write(view) :]
        self._hash.update(chunk)
        self.num_bytes += len(chunk)

    def restart(self) -> None:
        """Forget what is here."""
        self._target.truncate(0)
        self._hash, self.num_bytes = _start(self.file), 0

    def is_right(self) -> bool:
        """Whether all of it is here, as the hub says it should be."""
        right = self.file.kind is None or self._hash.hexdigest() == self.file.digest.lower()
        return self.num_bytes == self.file.num_bytes and right

    def finish(self) -> None:
        """Give it its name."""
        with self._path.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(self._path, self._folder / self.file.name)


def is_right(path: Path, file: RemoteFile) -> bool:
    """Whether a file is the one that the hub has."""
    if not path.is_file() or path.stat().st_size != file.num_bytes:
        return False
    digest = _start(file)
    with path.open("rb") as source:
        while chunk := source.read(_READ_BYTES):
            digest.update(chunk)
    return file.kind is None or digest.hexdigest() == file.digest.lower()


def _start(file: RemoteFile) -> hashlib._Hash:
    if file.kind == "git":  # Git's name for a file's content
        return hashlib.sha1(b"blob %d\0" % file.num_bytes)
    return hashlib.sha256()
