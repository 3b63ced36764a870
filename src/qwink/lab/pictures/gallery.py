"""Chosen pictures of the catalogue, as files in a folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from qwink.errors import OptionError
from qwink.lab.pictures.catalogue import CATALOGUE
from qwink.lab.pictures.entry import Entry

VERSION = 1  # of the pixels; raise it when a picture of the catalogue changes


@dataclass(frozen=True, slots=True)
class BenchPicture:
    """An entry of the catalogue as a file."""

    entry: Entry
    path: Path


def choose(count: int, entries: Sequence[Entry] = CATALOGUE) -> list[Entry]:
    """`count` entries of all kinds: the first of each kind, then the second of each, and so on.

    Raises OptionError for a count out of range.
    """
    if not 1 <= count <= len(entries):
        raise OptionError(f"pictures is {count}; there are 1 to {len(entries)}")
    kinds: dict[str, list[Entry]] = {}
    for entry in entries:
        kinds.setdefault(entry.kind, []).append(entry)
    rounds = zip_longest(*kinds.values())
    return [entry for round_ in rounds for entry in round_ if entry is not None][:count]


def write(entries: Sequence[Entry], folder: Path) -> list[BenchPicture]:
    """Draw the pictures that `folder` lacks. Raises OptionError when a package is missing."""
    folder = folder / f"pictures-{VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    return [_picture(entry, folder) for entry in entries]


def _picture(entry: Entry, folder: Path) -> BenchPicture:
    path = folder / f"{entry.name}{entry.suffix}"
    if not path.is_file():
        # Write to a temporary name, so that an interrupted run leaves no partial picture.
        partial = path.with_name(f".{entry.name}-{os.getpid()}{entry.suffix}")
        try:
            entry.make().save(partial, quality=90)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    return BenchPicture(entry, path)
