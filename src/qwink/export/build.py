"""Exports a checkpoint's folder to an artifact's folder, tensor by tensor, without PyTorch.

The artifact is built in a hidden folder beside its destination and moved there at the end, so that
an interrupted export leaves nothing that loads.
"""

from __future__ import annotations

import errno
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwink.errors import ArtifactError, CheckpointError
from qwink.export.graph import Graph, WeightFile
from qwink.export.identity import Progress, Report, artifact_id
from qwink.export.recipe import Recipe
from qwink.export.target import Target, choose_target
from qwink.export.text import build_head, build_text, decode_schemes, uniform_schemes
from qwink.export.vision import build_vision
from qwink.model.artifact import (
    COPIED_FILES,
    FORMAT_VERSION,
    MANIFEST,
    Artifact,
    FileInfo,
    Manifest,
    TableInfo,
    is_artifact,
)
from qwink.model.config import ModelConfig, load_config
from qwink.model.weights import Weights, fingerprint
from qwink.native import Layout


def export(
    checkpoint: Path | str,
    out: Path | str,
    recipe: Recipe,
    report: Report = lambda _: None,
    *,
    overwrite: bool = False,
    layout: Layout | None = None,
    way_out: str = "choose another folder",
) -> Artifact:
    """Build the artifact of `checkpoint` in folder `out`.

    `layout`: which operators it is made of, by default the fastest on this machine. "tiles16" loads
    on every x86-64 processor with AVX2, "onnxruntime" on every processor. `way_out` is what errors
    advise if nothing can be written to `out`.
    Raises CheckpointError if the checkpoint is not supported, OptionError if the recipe does not
    work with the layout, ArtifactError if `out` exists or cannot be written (also if the disk is
    full). A failed export leaves no files.
    """
    checkpoint, out = Path(checkpoint), Path(out)
    config = load_config(checkpoint)
    with Weights(checkpoint) as weights:
        weights.check(config)
        if config.text.attention_bias:
            raise CheckpointError(
                f"{checkpoint}: attention_bias is set; only checkpoints without it are supported"
            )
        if out.exists() and not (overwrite and is_artifact(out)):
            raise ArtifactError(f"{out}: already exists; choose another folder or remove it")
        source = fingerprint(checkpoint)
        target = choose_target(recipe, layout)
        with _staging(out, way_out) as staging:
            build = _Build(staging, config, weights, recipe, target, report)
            graphs, embedding, positions = build.run()
            for name in COPIED_FILES:
                if (checkpoint / name).is_file():
                    shutil.copyfile(checkpoint / name, staging / name)
            manifest = Manifest(
                FORMAT_VERSION,
                artifact_id(source, recipe, target),
                config.name,
                recipe.name,
                source,
                graphs,
                embedding,
                positions,
                {path.name: _describe(path) for path in sorted(staging.iterdir())},
                {name: version(name) for name in ("qwink", "onnx", "onnxruntime", "numpy")},
                target.layout,
            )
            (staging / MANIFEST).write_text(manifest.to_json(), "utf-8")
    return Artifact.load(out)


# No space, a file beyond what is allowed, a quota used up.
DISK_FULL = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))


@contextmanager
def _staging(out: Path, way_out: str) -> Iterator[Path]:
    """A hidden folder beside `out` that is renamed to `out` at the end, or removed on error."""
    staging: Path | None = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        yield staging
        staging.chmod(0o755)
        if out.exists():
            shutil.rmtree(out)
        staging.rename(out)
    except OSError as error:
        reason = (
            f"the disk is full; free some space or {way_out}"
            if error.errno in DISK_FULL
            else f"cannot be written: {error.strerror or error}; {way_out}"
        )
        raise ArtifactError(f"{out}: {reason}") from error
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)


def _describe(path: Path) -> FileInfo:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return FileInfo(path.stat().st_size, digest)


class _CountedWeights(Weights):
    """Weights that report what has been read."""

    def __init__(self, folder: Path, on_read: Callable[[int], None]) -> None:
        super().__init__(folder)
        self._on_read = on_read

    def read(self, name: str) -> NDArray[np.float32]:
        values = super().read(name)
        self._on_read(values.size)
        return values


class _Build:
    """The state of one export."""

    def __init__(
        self,
        folder: Path,
        config: ModelConfig,
        weights: Weights,
        recipe: Recipe,
        target: Target,
        report: Report,
    ) -> None:
        self._folder, self._config, self._recipe, self._target = folder, config, recipe, target
        self._report, self._done, self._part = report, 0, ""
        self._weights = _CountedWeights(weights.folder, self._count)
        sizes = {name: int(np.prod(weights.shape(name))) for name in weights.names}
        layers = sum(size for name, size in sizes.items() if ".layers." in name)
        # Text layers are read once for each copy; the embedding once more as the tied head.
        self._total = sum(sizes.values()) + (0 if recipe.shares_text_weights else layers)

    def _count(self, num_parameters: int) -> None:
        self._done = min(self._done + num_parameters, self._total)
        self._report(Progress(self._done, self._total, self._part))

    @contextmanager
    def _graph(self, name: str) -> Iterator[Graph]:
        self._part = name
        tensors = WeightFile(self._folder / f"{name}.bin")
        try:
            graph = Graph(name, tensors, self._target)
            # A second question about a picture runs few rows through the prefill graph, too.
            graph.huge_pages = name != "vision"
            yield graph
            graph.save(self._folder / f"{name}.onnx")
        finally:
            tensors.close()

    def run(self) -> tuple[dict[str, str], TableInfo, TableInfo]:
        config, recipe, weights = self._config, self._recipe, self._weights
        num_layers = config.text.num_layers
        with self._graph("vision") as graph:
            build_vision(graph, config, weights, recipe.vision)
        decode = decode_schemes(num_layers, recipe)
        if recipe.prefill is None:
            prefill_file = "text"
            fused = recipe.decode.kind == "nbits"
            with self._graph("text") as graph:
                build_text(graph, config, weights, decode, fused=fused, with_deepstack=True)
        else:
            prefill_file = "prefill"
            prefill = uniform_schemes(num_layers, recipe.prefill)
            with self._graph("prefill") as graph:
                build_text(graph, config, weights, prefill, fused=False, with_deepstack=True)
            with self._graph("decode") as graph:
                build_text(graph, config, weights, decode, fused=True, with_deepstack=False)
        with self._graph("head") as graph:
            build_head(graph, config, weights, recipe.head)
        decode_file = "text" if recipe.prefill is None else "decode"
        graphs = {
            "vision": "vision.onnx",
            "prefill": f"{prefill_file}.onnx",
            "decode": f"{decode_file}.onnx",
            "head": "head.onnx",
        }
        embedding = self._table("model.language_model.embed_tokens.weight", "embedding.bin")
        positions = self._table("model.visual.pos_embed.weight", "positions.bin")
        self._part = "done"
        self._count(self._total)
        self._weights.close()
        return graphs, embedding, positions

    def _table(self, name: str, file: str) -> TableInfo:
        """Copy a table in its own type, to be mapped and read row by row."""
        raw, dtype = self._weights.read_raw(name)
        table: NDArray[Any] = raw
        with (self._folder / file).open("wb") as target:
            for start in range(0, table.shape[0], 4096):
                target.write(np.ascontiguousarray(table[start : start + 4096]).data.cast("B"))
        return TableInfo(file, dtype, (table.shape[0], table.shape[1]))
