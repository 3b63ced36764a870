"""What the user names → work items, one after the other: files, folders, patterns and tables."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from qwink.batches.items import Item, Part, failing
from qwink.batches.loaders import Loading, known_kind, parts_of
from qwink.batches.storage import is_stored, read_stored, stored_files
from qwink.batches.tables import Columns, Entry, is_table, is_url, read_lines, read_table
from qwink.errors import ImageError, OptionError, QwinkError
from qwink.inputs.data_urls import is_data_url
from qwink.types import ImageSource


@dataclass(frozen=True, slots=True)
class Sources:
    """Where work items come from. Each iteration reads folders and tables anew.

    `given`: paths of files, folders and tables, patterns such as scans/*.png, or pictures in
    memory. `recursive` goes into the folders of folders. `lines`: for "-", the list on stdin; it
    can be read once.
    """

    given: tuple[str | os.PathLike[str] | Item | ImageSource, ...]
    recursive: bool = False
    columns: Columns = field(default_factory=Columns)
    lines: Iterable[str] | None = None
    loading: Loading = field(default_factory=Loading)

    @property
    def repeatable(self) -> bool:
        """Whether the items can be read more than once."""
        return self.lines is None

    def check(self) -> None:
        """Raises OptionError for a source that is not there, and for tables without a path."""
        if not self.given:
            raise OptionError("no source; name pictures, folders, patterns or tables")
        for source in self.given:
            if not isinstance(source, str | os.PathLike) or os.fspath(source) == "-":
                continue
            path = str(os.fspath(source))
            if os.path.isdir(path):
                continue
            if os.path.lexists(path):
                if is_table(path):
                    next(read_table(Path(path), self.columns), None)
            elif glob.has_magic(path) and not is_url(path):
                if next(_matches(path), None) is None:
                    raise OptionError(f"nothing matches {path!r}; quote the pattern, check it")
            elif not is_url(path):
                raise OptionError(f"no such file or folder: {path!r}; check the path")

    def __iter__(self) -> Iterator[Item]:
        """The items. Raises OptionError for a table that cannot be read."""
        for number, source in enumerate(self.given):
            if isinstance(source, Item):
                yield source
            elif isinstance(source, str | os.PathLike):
                yield from self._of_path(str(os.fspath(source)))
            elif isinstance(source, Mapping):
                yield from _of_mapping(source, number, self.loading)
            else:
                yield Item.of(Part(partial(_itself, source)), str(number))

    def _of_path(self, path: str) -> Iterator[Item]:
        if path == "-":
            for entry in read_lines(self.lines or (), self.columns, "stdin"):
                yield from _of_entry(entry, self.loading)
        elif is_stored(path):
            for uri in stored_files(path, self.recursive):
                yield from _of_file(uri, self.loading)
        elif os.path.isdir(path):
            yield from self._of_folder(path)
        elif os.path.lexists(path) and is_table(path):
            for entry in read_table(Path(path), self.columns):
                yield from _of_entry(entry, self.loading)
        elif not is_url(path) and not os.path.lexists(path) and glob.has_magic(path):
            for match in _matches(path):
                yield from _of_file(match, self.loading)
        else:
            yield from _of_file(path, self.loading)

    def _of_folder(self, folder: str) -> Iterator[Item]:
        """Files of known kinds in a folder, in order of their names, then those of its folders."""
        try:
            with os.scandir(folder) as entries:
                found = sorted((entry.name, entry.is_dir()) for entry in entries)
        except OSError as error:
            problem = ImageError(f"{folder}: cannot be read: {error.strerror or error}")
            yield Item.of(failing(problem), folder)
            return
        for name, is_folder in found:
            if not is_folder and not name.startswith(".") and known_kind(name):
                yield from _of_file(os.path.join(folder, name), self.loading)
        for name, is_folder in found if self.recursive else ():
            path = os.path.join(folder, name)
            if is_folder and not name.startswith(".") and not os.path.islink(path):
                yield from self._of_folder(path)


def _matches(pattern: str) -> Iterator[str]:
    return (path for path in sorted(glob.iglob(pattern, recursive=True)) if os.path.isfile(path))


def _of_file(
    path: str, loading: Loading, question: str | None = None, given_id: str | None = None
) -> Iterator[Item]:
    if is_stored(path):
        yield Item.of(Part(partial(read_stored, path)), path, question, given_id)
        return
    if is_url(path):  # preparing says whether it can be used
        yield Item.of(Part(partial(_itself, path)), _short(path), question, given_id)
        return
    try:
        for part in parts_of(path, loading):
            yield Item.of(replace(part, file=path), path, question, given_id)
    except QwinkError as error:
        yield Item.of(failing(error), path, question, given_id)


def _of_entry(entry: Entry, loading: Loading) -> Iterator[Item]:
    if entry.error:
        yield Item.of(failing(ImageError(entry.error)), entry.path)
    else:
        yield from _of_file(entry.path, loading, entry.question, entry.id)


def _of_mapping(values: Mapping[str, Any], number: int, loading: Loading) -> Iterator[Item]:
    """Items of {"image": ..., "question": ..., "id": ...}."""
    if "image" not in values:
        raise OptionError(f"source {number} has no 'image'; give {{'image': ..., 'question': ...}}")
    image, question, given = values["image"], values.get("question"), values.get("id")
    given = None if given is None else str(given)
    if isinstance(image, str | os.PathLike):
        yield from _of_file(str(os.fspath(image)), loading, question, given)
    else:
        yield Item.of(Part(partial(_itself, image)), str(number), question, given)


def _short(url: str) -> str:
    """What stands for a URL in rows: for a data URL, which holds a picture, its hash."""
    if not is_data_url(url):
        return url
    return f"data:{hashlib.sha256(url.encode('utf-8', 'replace')).hexdigest()[:16]}"


def _itself(source: ImageSource) -> ImageSource:
    return source
