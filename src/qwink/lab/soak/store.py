"""Whether all entries of a store of encoded images can be read."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from qwink.cache.embeddings import Expected
from qwink.cache.entry import Unusable, file_size, read, unpack
from qwink.types import Grid

_HEADER = 44  # where the header begins: behind magic, checksum and its length


@dataclass(frozen=True, slots=True)
class StoreState:
    """`damaged` names the files under an entry's name that are no entry of that name."""

    entries: int
    damaged: tuple[str, ...]
    num_bytes: int


def check_store(folder: Path) -> StoreState:
    """Read every entry as the server would, from what its header says it is."""
    paths = sorted(folder.rglob("*.qwink"))
    damaged = tuple(str(path.relative_to(folder)) for path in paths if not _is_whole(path))
    return StoreState(len(paths), damaged, sum(path.stat().st_size for path in paths))


def _is_whole(path: Path) -> bool:
    try:
        content = path.read_bytes()
        length = int.from_bytes(content[_HEADER - 4 : _HEADER], "little")
        header = json.loads(content[_HEADER : _HEADER + length])
        expected = Expected(
            header["key"],
            Grid(*header["grid"]),
            tuple(header["embeds"]),
            tuple(header["deepstack"]),
        )
        unpack(read(path, file_size(expected)), expected)
    except (OSError, Unusable, ValueError, LookupError, TypeError):
        return False
    name = hashlib.sha256(expected.key.encode("utf-8", "surrogatepass")).hexdigest()
    return path.parts[-3:] == (name[:2], name[2:4], f"{name[4:]}.qwink")
