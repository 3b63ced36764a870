"""An artifact: the folder that an export writes and an engine loads.

`manifest.json` names the recipe, the source and every file with size and SHA-256. Graphs refer to
files of raw tensors in the same folder. `Artifact.load` checks sizes; `Artifact.check` checks
hashes.
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

FORMAT_VERSION = 3
MANIFEST = "manifest.json"
# Copied from the checkpoint, so that an engine can load an artifact without it.
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
    """A raw table. `dtype` is a name of safetensors: "BF16", "F16" or "F32"."""

    file: str
    dtype: str
    shape: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of an artifact. `id` differs between artifacts whose answers can differ.

    `graphs` maps each part (vision, prefill, decode, head) to its file. Prefill and decode use
    the same file if the recipe has one copy of the text weights. `layout` says which operators
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
    """An artifact folder. All files exist and have the right size."""

    folder: Path
    manifest: Manifest
    config: ModelConfig

    @classmethod
    def load(cls, folder: Path | str) -> Artifact:
        """Raises ArtifactError: no artifact, another format version, or a file of wrong size."""
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
        """The path of the graph for `part`."""
        return self.folder / self.manifest.graphs[part]

    def table(self, info: TableInfo) -> NDArray[Any]:
        """A table as a read-only memory map; bfloat16 as uint16."""
        return np.memmap(self.folder / info.file, _STORED[info.dtype], "r", shape=info.shape)

    def check(self) -> None:
        """Hash every file. Raises ArtifactError for a file that differs from the manifest."""
        for name, info in self.manifest.files.items():
            try:
                with (self.folder / name).open("rb") as file:
                    found = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise ArtifactError(f"{self.folder / name}: {error.strerror}") from None
            if found != info.sha256:
                raise ArtifactError(f"{self.folder / name}: damaged; export the checkpoint again")


def is_artifact(folder: Path) -> bool:
    """Whether `folder` has a manifest."""
    return (folder / MANIFEST).is_file()
