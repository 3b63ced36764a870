"""Pictures in object storage and other file systems that pyarrow reads: s3://, gs://, ..."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from qwink.batches.loaders import PICTURE
from qwink.errors import ImageError, OptionError
from qwink.extras import install_command
from qwink.inputs.files import MAX_FILE_BYTES

SCHEMES = frozenset({"s3", "gs", "gcs", "abfs", "abfss", "hdfs", "file"})


def is_stored(path: str) -> bool:
    """Whether it is a URI of such a file system."""
    scheme, separator, _ = path.partition("://")
    return bool(separator) and scheme.lower() in SCHEMES


def stored_files(uri: str, recursive: bool) -> Iterator[str]:
    """The URIs of a folder's pictures, sorted; of a file, its own.

    Raises OptionError if there is nothing at the URI, or if it cannot be reached.
    """
    import pyarrow.fs as fs

    system, path = _resolved(uri)
    try:
        found = system.get_file_info(path)
        if found.type == fs.FileType.NotFound:
            raise OptionError(f"there is nothing at {uri}; check it")
        if found.type == fs.FileType.File:
            yield uri
            return
        entries = system.get_file_info(fs.FileSelector(path, recursive=recursive))
    except OSError as error:
        raise OptionError(
            f"{uri} cannot be read: {error}; check it and your credentials"
        ) from error
    before = uri.rstrip("/")
    for entry in sorted(entries, key=lambda each: str(each.path)):
        suffix = f".{entry.extension.lower()}"
        if entry.type == fs.FileType.File and suffix in PICTURE.suffixes:
            yield before + str(entry.path)[len(path.rstrip("/")) :]


def read_stored(uri: str) -> bytes:
    """The bytes of a file. Raises ImageError."""
    system, path = _resolved(uri)
    try:
        with system.open_input_file(path) as file:
            if file.size() > MAX_FILE_BYTES:
                raise ImageError(f"{uri} is larger than {MAX_FILE_BYTES >> 20} MiB")
            return bytes(file.read())
    except OSError as error:
        raise ImageError(f"cannot read {uri}: {error}") from error


def _resolved(uri: str) -> tuple[Any, str]:
    """The file system and the path in it. Raises OptionError."""
    try:
        import pyarrow.fs as fs
    except ImportError as error:
        raise OptionError(
            f"{uri} needs pyarrow; install it: {install_command('parquet')}"
        ) from error
    try:
        system, path = fs.FileSystem.from_uri(uri)
    except (OSError, ValueError) as error:
        raise OptionError(f"{uri} cannot be reached: {error}") from error
    return system, str(path)
