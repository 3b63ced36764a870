"""The CPU engine on ONNX Runtime: an artifact's graphs, resident, with the KV cache in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from qwink import native
from qwink.engine.base import Chunk, NewTokens, Traits, image_key, last
from qwink.engine.fork import outlive_forks
from qwink.engine.onnx_cache import OnnxCache
from qwink.engine.onnx_text import Tokens, text_graph
from qwink.engine.threads import physical_cores
from qwink.errors import ArtifactError
from qwink.model.artifact import Artifact
from qwink.model.rope import interpolate_positions, rope_table, vision_rope
from qwink.model.weights import widen
from qwink.types import EncodedImage, Grid, Patches

Float = NDArray[np.float32]

SPARE_SLOTS = 16
MAX_KNOWN_GRIDS = 16  # position tables kept; 3 MB each for 448×448 px at the 2B's size


class OnnxEngine:
    """Runs one artifact. `threads` is the number of threads of one computation."""

    def __init__(self, artifact: Artifact, threads: int | None = None) -> None:
        """Raises ArtifactError when a graph does not load."""
        here, layout = native.capabilities(), artifact.manifest.layout
        if layout not in here.layouts:
            raise ArtifactError(
                f"{artifact.folder}: made of qwink's own operators, which do not run here "
                f"({here.advice}); export its checkpoint again on this machine, or with "
                "--layout onnxruntime"
            )
        self._artifact = artifact
        self._kernels = here.kernels_of(layout)
        ours = layout != "onnxruntime"
        self.traits = Traits(
            cheap_rows=here.cheap_rows if ours else 1, spare_slots=SPARE_SLOTS, invariant=ours
        )
        self.config = artifact.config
        self.threads = threads or physical_cores()
        files = {part: artifact.graph(part) for part in ("vision", "prefill", "decode", "head")}
        distinct = sorted(set(files.values()))
        # Creation is mostly prepacking weights, hence in parallel.
        with ThreadPoolExecutor(len(distinct)) as pool:
            sessions = dict(zip(distinct, pool.map(self._session, distinct), strict=True))
        self._vision, self._head = sessions[files["vision"]], sessions[files["head"]]
        decode = sessions[files["decode"]]
        self._prefill, self._decode = text_graph(sessions[files["prefill"]]), text_graph(decode)
        self._cache_type = np.dtype(native.cache_type(layout))
        self._embedding = artifact.table(artifact.manifest.embedding)
        positions = artifact.table(artifact.manifest.positions)
        self._position_table = widen(positions)
        self._grids: dict[Grid, dict[str, Float]] = {}
        self._no_stream = self._empty_stream()
        self._text_rope = self._rope(np.arange(0))

    @property
    def artifact_id(self) -> str:
        return self._artifact.manifest.id

    @property
    def name(self) -> str:
        return self._artifact.manifest.name

    @property
    def bytes_per_token(self) -> int:
        text = self.config.text
        values = 2 * text.num_layers * text.num_kv_heads * text.head_dim
        return values * self._cache_type.itemsize

    @property
    def about(self) -> dict[str, str]:
        manifest = self._artifact.manifest
        return {"engine": "onnx", "recipe": manifest.recipe, "kernels": self._kernels}

    def _session(self, path: Path) -> ort.InferenceSession:
        options = ort.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.log_severity_level = 3
        # From the second run on, a plan would set aside every operator's scratch memory at once.
        options.enable_mem_pattern = False
        # Each graph has threads of its own, which wait for work by spinning: those of one graph
        # must not do so while another runs.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        # An artifact may come from a processor whose int8 products are exact with larger weights.
        # Where this one's would saturate, ONNX Runtime then takes a slower, exact product.
        options.add_session_config_entry("session.x64quantprecision", "1")
        try:
            if self._artifact.manifest.layout != "onnxruntime":
                options.register_custom_ops_library(str(native.LIBRARY))
            session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime raises a type of its own for each status code
            reason = str(error).splitlines()[0]
            raise ArtifactError(
                f"{path}: onnxruntime cannot load it; if another version of qwink made it, export "
                f"its checkpoint again: {reason}"
            ) from error
        outlive_forks(session)
        return session

    def encode(self, images: Sequence[Patches]) -> list[EncodedImage]:
        """Run the vision encoder over images, one after the other.

        The frames of a video attend each to itself.
        """
        return last(self.encode_parts(images))

    def encode_parts(self, images: Sequence[Patches]) -> Iterator[list[EncodedImage] | None]:
        """As `encode`, about one layer of one image at a time."""
        encoded: list[EncodedImage] = []
        for patches in images:
            for image in self._encode(patches):
                if image is not None:
                    encoded.append(image)
                if len(encoded) < len(images):
                    yield None
        yield encoded

    def _encode(self, patches: Patches) -> Iterator[EncodedImage | None]:
        grid, vision = patches.grid, self.config.vision
        frames = patches.pixels.reshape(grid.t, grid.h * grid.w, -1)
        fixed = {"patches": frames, **self._grid_tables(grid)}
        # Values stay with ONNX Runtime from part to part, which saves copies of the stream.
        feeds = {name: ort.OrtValue.ortvalue_from_numpy(value) for name, value in fixed.items()}
        feeds["stream"] = ort.OrtValue.ortvalue_from_numpy(self._no_stream)
        tokens: list[Float] = []
        is_still = patches.pixels.shape[1] == vision.in_channels * vision.patch_size**2
        first = 0 if is_still else vision.num_parts
        for part in (first, *range(1, vision.num_parts)):
            feeds["part"] = ort.OrtValue.ortvalue_from_numpy(np.array(part, np.int64))
            stream, found = self._vision.run_with_ort_values(["next_stream", "tokens"], feeds)
            if found.shape()[0]:
                tokens.append(found.numpy())
            else:
                feeds["stream"] = stream
            if part < vision.num_parts - 1:
                yield None
        *taps, embeds = tokens  # each [V, D]
        deepstack = np.stack(taps) if taps else np.zeros((0, *embeds.shape), np.float32)
        for array in (embeds, deepstack):
            array.flags.writeable = False
        yield EncodedImage(embeds, deepstack, grid, image_key(patches.key, self.artifact_id))

    def _empty_stream(self) -> Float:
        """What the encoder's first part takes as the stream, and does not read."""
        shape = next(one.shape for one in self._vision.get_inputs() if one.name == "stream")
        return np.zeros([size if isinstance(size, int) else 0 for size in shape], np.float32)

    def _grid_tables(self, grid: Grid) -> dict[str, Float]:
        """Positions and rotations for one frame of `grid`; made once for each recent grid."""
        frame = Grid(1, grid.h, grid.w)
        if frame not in self._grids:
            vision = self.config.vision
            cos, sin = vision_rope(frame, vision.head_dim, vision.rope_theta, vision.merge_size)
            positions = interpolate_positions(self._position_table, frame, vision.merge_size)
            while len(self._grids) >= MAX_KNOWN_GRIDS:
                del self._grids[next(iter(self._grids))]
            self._grids[frame] = {"positions": positions, "cos": cos, "sin": sin}
        return self._grids[frame]

    def open_cache(self, num_slots: int, capacity: int) -> OnnxCache:
        """Slots for `num_slots` sequences of up to `capacity` tokens."""
        # A text token's position is below its number among the prompt's and answer's tokens.
        if capacity > self._text_rope[0].shape[0]:
            self._text_rope = self._rope(np.arange(capacity))
        return OnnxCache(self.config, num_slots, capacity, self._cache_type)

    def _rope(self, positions: NDArray[np.int64]) -> tuple[Float, Float]:
        """Rotation tables for positions [S] (text) or [3, S]."""
        text = self.config.text
        axes = np.broadcast_to(positions, (3, positions.shape[-1]))
        return rope_table(axes, text.head_dim, text.rope_theta, text.mrope_section)

    def prefill(self, cache: OnnxCache, chunks: Sequence[Chunk]) -> Float:
        """Run chunks of prompts, one after the other: [len(chunks), D]."""
        return np.concatenate([self.hidden_states(cache, c, [len(c) - 1]) for c in chunks])

    def hidden_states(self, cache: OnnxCache, chunk: Chunk, select: Sequence[int]) -> Float:
        """As `prefill`, for the tokens `select` of one chunk, ascending: [len(select), D]."""
        span = slice(chunk.start, chunk.stop)
        embeds = widen(self._embedding[chunk.prompt.ids[span]])  # [R, D]
        num_taps = len(self.config.vision.deepstack_layers)
        deepstack = np.zeros((num_taps, *embeds.shape), np.float32)
        for target, image, source in chunk.image_parts():
            embeds[target] = image.embeds[source]
            deepstack[:, target] = image.deepstack[:, source]
        cos, sin = self._rope(chunk.prompt.positions[:, span])
        tokens = Tokens(
            (chunk.slot,),
            (chunk.start,),
            (chunk.stop,),
            embeds,
            cos,
            sin,
            np.asarray(select, np.int64),
            deepstack,
            prompt=True,
            last=chunk.stop == len(chunk.prompt),
        )
        return self._prefill.run(cache, tokens)

    def step(self, cache: OnnxCache, runs: Sequence[NewTokens]) -> Float:
        """Run new tokens of answers, all at once: [sum of `num_logits`, vocab]."""
        ids = np.concatenate([run.ids for run in runs])
        stops = np.cumsum([len(run.ids) for run in runs])
        wanted = [
            np.arange(stop - run.num_logits, stop) for run, stop in zip(runs, stops, strict=True)
        ]
        positions = np.concatenate([run.position + np.arange(len(run.ids)) for run in runs])
        cos, sin = (table[positions] for table in self._text_rope)
        tokens = Tokens(
            tuple(run.slot for run in runs),
            tuple(run.length for run in runs),
            tuple(run.length + len(run.ids) for run in runs),
            widen(self._embedding[ids]),
            cos,
            sin,
            np.concatenate(wanted),
        )
        return self.logits(self._decode.run(cache, tokens))

    def logits(self, hidden: Float) -> Float:
        """Final norm and LM head: [L, D] → [L, vocab]."""
        logits: Float = self._head.run(["logits"], {"hidden": hidden})[0]
        return logits
