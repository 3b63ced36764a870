"""An artifact: the folder that an export makes and an engine loads.

`manifest.json` names recipe, source and every file with size and SHA-256; graphs refer to raw
tensor files beside them. Loading checks sizes always, hashes on demand.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwink.errors import ArtifactError
from qwink.model.config import ModelConfig, load_config
from qwink.native import LAYOUTS, Layout

FORMAT_VERSION = 2
MANIFEST = "manifest.json"
# What is copied from the checkpoint, so that an artifact stands alone.
COPIED_FILES = (
    "config.json",
    "generation_config.json",
    "preprocessor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
)
PARTS = ("vision", "prefill", "decode", "head")
_STORED = {"BF16": "<u2", "F16": "<f2", "F32": "<f4"}


@dataclass(frozen=True, slots=True)
class FileInfo:
    """Size and content of one file."""

    num_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A raw table: `dtype` as safetensors spells it."""

    file: str
    dtype: str
    shape: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is in an artifact. `id` changes whenever an answer could.

    `graphs` says which file plays which part: vision, prefill, decode, head. Prefill and decode
    are the same file where one copy of the weights serves both. `layout` says which operators
    they are made of, and how weights are stored.
    """

    format_version: int
    id: str
    name: str
    recipe: str
    source_fingerprint: str
    graphs: dict[str, str]
    embedding: TableInfo
    positions: TableInfo
    files: dict[str, FileInfo]
    versions: dict[str, str]
    layout: Layout

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Raises KeyError, TypeError or ValueError if it is not a manifest."""
        values: dict[str, Any] = json.loads(text)
        for key in ("embedding", "positions"):
            table = values[key]
            values[key] = TableInfo(table["file"], table["dtype"], tuple(table["shape"]))
        values["files"] = {name: FileInfo(**info) for name, info in values["files"].items()}
        if set(values["graphs"]) != set(PARTS):
            raise ValueError("graphs")
        if values["layout"] not in LAYOUTS:
            raise ValueError("layout")
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Artifact:
    """An artifact folder whose files are all there."""

    folder: Path
    manifest: Manifest
    config: ModelConfig

    @classmethod
    def load(cls, folder: Path | str) -> Artifact:
        """Raises ArtifactError: not an artifact, another format version, a file missing or cut."""
        folder = Path(folder)
        path = folder / MANIFEST
        try:
            values = json.loads(path.read_text("utf-8"))
            version = values["format_version"]
            manifest = (
                Manifest.from_json(path.read_text("utf-8")) if version == FORMAT_VERSION else None
            )
        except FileNotFoundError:
            raise ArtifactError(f"{folder}: not an artifact, it has no {MANIFEST}") from None
        except (OSError, KeyError, TypeError, ValueError, AttributeError):
            raise ArtifactError(f"{path}: damaged; export the checkpoint again") from None
        if manifest is None:
            raise ArtifactError(
                f"{folder}: format version {version}, this qwink reads {FORMAT_VERSION}; "
                "export the checkpoint again"
            )
        for name, info in manifest.files.items():
            file = folder / name
            found = file.stat().st_size if file.is_file() else None
            if found != info.num_bytes:
                state = "missing" if found is None else f"{found} bytes, not {info.num_bytes}"
                raise ArtifactError(f"{file}: {state}; export the checkpoint again")
        return cls(folder, manifest, load_config(folder))

    def graph(self, part: str) -> Path:
        """The graph file that plays `part`."""
        return self.folder / self.manifest.graphs[part]

    def table(self, info: TableInfo) -> NDArray[Any]:
        """A table, mapped, read-only; bfloat16 as uint16."""
        return np.memmap(self.folder / info.file, _STORED[info.dtype], "r", shape=info.shape)

    def check(self) -> None:
        """Hash every file. Raises ArtifactError for one that is not as written."""
        for name, info in self.manifest.files.items():
            try:
                with (self.folder / name).open("rb") as file:
                    found = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise ArtifactError(f"{self.folder / name}: {error.strerror}") from None
            if found != info.sha256:
                raise ArtifactError(f"{self.folder / name}: damaged; export the checkpoint again")


def is_artifact(folder: Path) -> bool:
    """Whether `folder` says of itself that it is an artifact."""
    return (folder / MANIFEST).is_file()
