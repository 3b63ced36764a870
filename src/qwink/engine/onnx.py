"""The CPU engine on ONNX Runtime: an artifact's graphs, resident, with the KV cache in place."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from qwink import native
from qwink.engine.base import Chunk, Traits, image_key
from qwink.engine.reserve import reserve
from qwink.engine.threads import physical_cores
from qwink.errors import ArtifactError
from qwink.model.artifact import Artifact
from qwink.model.config import ModelConfig
from qwink.model.rope import interpolate_positions, rope_table, vision_rope
from qwink.model.weights import widen
from qwink.types import EncodedImage, Grid, Patches, Prompt

Float = NDArray[np.float32]

MAX_KNOWN_GRIDS = 16  # position tables kept; 3 MB each for 448×448 px at the 2B's size


class OnnxCache:
    """Keys and values, [slots, KV heads, capacity, head_dim] for each layer.

    Fresh pages cost nothing until tokens are written to them: capacity is an upper bound, not a
    price. Neighbouring slots are one contiguous batch, which graphs read and extend in place.
    """

    grows = True

    def __init__(
        self, config: ModelConfig, num_slots: int, capacity: int, dtype: np.dtype[Any]
    ) -> None:
        text = config.text
        self.num_slots, self.capacity = num_slots, capacity
        self.bytes_per_token = (
            2 * text.num_layers * text.num_kv_heads * text.head_dim * dtype.itemsize
        )
        shape = (text.num_layers, 2, num_slots, text.num_kv_heads, capacity, text.head_dim)
        self._data = reserve(shape, dtype)
        # Binding a hundred tensors costs as much as a layer, so bindings are kept per batch.
        self._bindings: dict[tuple[int, int, int], ort.IOBinding] = {}

    def binding(self, session: ort.InferenceSession, first: int, count: int) -> ort.IOBinding:
        """A binding of `session` whose past and present are slots `first` to `first + count`."""
        key = (id(session), first, count)
        if key not in self._bindings:
            binding = session.io_binding()
            for layer, pair in enumerate(self._data):
                for name, tensor in zip(("key", "value"), pair, strict=True):
                    batch = tensor[first : first + count]
                    place = ("cpu", 0, batch.dtype, batch.shape, batch.ctypes.data)
                    binding.bind_input(f"past_{name}_{layer}", *place)
                    binding.bind_output(f"present_{name}_{layer}", *place)
            self._bindings[key] = binding
        return self._bindings[key]

    def copy(self, source: int, target: int, num_tokens: int) -> None:
        """Overwrite the first tokens of slot `target` with those of slot `source`."""
        self._data[:, :, target, :, :num_tokens] = self._data[:, :, source, :, :num_tokens]

    def read(self, slot: int, num_tokens: int) -> NDArray[Any]:
        """A copy of a slot's first tokens: [layers, 2, KV heads, tokens, head_dim]."""
        return self._data[:, :, slot, :, :num_tokens].copy()

    def write(self, slot: int, values: NDArray[Any]) -> None:
        """Put what `read` gave at the start of a slot."""
        self._data[:, :, slot, :, : values.shape[3]] = values


class OnnxEngine:
    """Runs one artifact. `threads` is the number of threads of one computation."""

    traits = Traits()

    def __init__(self, artifact: Artifact, threads: int | None = None) -> None:
        """Raises ArtifactError when a graph does not load."""
        kernels = artifact.manifest.kernels
        if not native.runs(kernels):
            raise ArtifactError(
                f"{artifact.folder}: made of qwink's own {kernels} kernels, which this processor "
                "does not run, or which were not compiled when qwink was installed; "
                "export its checkpoint again on this machine"
            )
        self._artifact = artifact
        self.config = artifact.config
        self.threads = threads or physical_cores()
        files = {part: artifact.graph(part) for part in ("vision", "prefill", "decode", "head")}
        distinct = sorted(set(files.values()))
        # Creation is mostly prepacking weights, hence in parallel. In chunks of up to 512 tokens,
        # GroupQueryAttention's plain path is 1.4x faster than its flash path.
        with (
            _environment_variable("ORT_GQA_DISABLE_FLASH_ATTENTION", "1"),
            ThreadPoolExecutor(len(distinct)) as pool,
        ):
            sessions = dict(zip(distinct, pool.map(self._session, distinct), strict=True))
        self._vision, self._prefill, self._decode, self._head = (
            sessions[files[part]] for part in ("vision", "prefill", "decode", "head")
        )
        inputs = {value.name: value.type for value in self._decode.get_inputs()}
        self._decode_takes_deepstack = "deepstack" in inputs
        self._takes_prompt = "prompt" in inputs
        half = inputs["past_key_0"] == "tensor(float16)"
        self._cache_type = np.dtype(np.float16 if half else np.float32)
        self._embedding = artifact.table(artifact.manifest.embedding)
        positions = artifact.table(artifact.manifest.positions)
        self._position_table = widen(positions)
        self._grids: dict[Grid, dict[str, Float]] = {}
        self._text_rope = self._rope(np.arange(0))

    @property
    def artifact_id(self) -> str:
        return self._artifact.manifest.id

    @property
    def name(self) -> str:
        return self._artifact.manifest.name

    @property
    def about(self) -> dict[str, str]:
        manifest = self._artifact.manifest
        return {"engine": "onnx", "recipe": manifest.recipe, "kernels": manifest.kernels}

    def _session(self, path: Path) -> ort.InferenceSession:
        options = ort.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.log_severity_level = 3
        # From the second run on, a plan would set aside every operator's scratch memory at once.
        options.enable_mem_pattern = False
        # Each graph has threads of its own, which wait for work by spinning: those of one graph
        # must not do so while another runs.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        try:
            if self._artifact.manifest.kernels != "onnxruntime":
                options.register_custom_ops_library(str(native.LIBRARY))
            return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime raises a type of its own for each status code
            reason = str(error).splitlines()[0]
            raise ArtifactError(
                f"{path}: onnxruntime cannot load it; if another version of qwink made it, export "
                f"its checkpoint again: {reason}"
            ) from error

    def encode(self, patches: Patches) -> EncodedImage:
        """Run the vision encoder over one image; a video's frames attend each to itself."""
        grid = patches.grid
        frames = patches.pixels.reshape(grid.t, grid.h * grid.w, -1)
        names = ["embeds"] + ["deepstack"] * bool(self.config.vision.deepstack_layers)
        results = self._vision.run(names, {"patches": frames, **self._grid_tables(grid)})
        embeds = results[0]  # [V, D]
        empty = np.zeros((0, *embeds.shape), np.float32)
        deepstack = results[1] if len(results) > 1 else empty
        for array in (embeds, deepstack):
            array.flags.writeable = False
        return EncodedImage(embeds, deepstack, grid, image_key(patches.key, self.artifact_id))

    def encode_many(self, images: Sequence[Patches]) -> list[EncodedImage]:
        """As `encode`, one after the other: a core is no faster with several at once."""
        return [self.encode(patches) for patches in images]

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
        if capacity > self._text_rope[0].shape[0]:
            self._text_rope = self._rope(np.arange(capacity))
        return OnnxCache(self.config, num_slots, capacity, self._cache_type)

    def _rope(self, positions: NDArray[np.int64]) -> tuple[Float, Float]:
        """Rotation tables for positions [S] (text) or [3, S]."""
        text = self.config.text
        axes = np.broadcast_to(positions, (3, positions.shape[-1]))
        return rope_table(axes, text.head_dim, text.rope_theta, text.mrope_section)

    def prefill(
        self,
        cache: OnnxCache,
        slot: int,
        prompt: Prompt,
        images: Mapping[str, EncodedImage],
        start: int,
        stop: int,
    ) -> Float:
        """Run tokens `start` to `stop` into `slot`. Returns the last one's hidden state [D]."""
        last = [stop - start - 1]
        hidden: Float = self.hidden_states(cache, slot, prompt, images, start, stop, last)[0]
        return hidden

    def prefill_many(self, cache: OnnxCache, first_slot: int, chunks: Sequence[Chunk]) -> Float:
        """As `prefill`, one after the other. Returns hidden states [B, D]."""
        rows = [
            self.prefill(cache, slot, chunk.prompt, chunk.images, chunk.start, chunk.stop)
            for slot, chunk in enumerate(chunks, first_slot)
        ]
        return np.stack(rows)

    def hidden_states(
        self,
        cache: OnnxCache,
        slot: int,
        prompt: Prompt,
        images: Mapping[str, EncodedImage],
        start: int,
        stop: int,
        select: Sequence[int],
    ) -> Float:
        """As `prefill`, but returns the tokens `select` of the chunk: [len(select), D]."""
        num_taps = len(self.config.vision.deepstack_layers)
        embeds = widen(self._embedding[prompt.ids[start:stop]])  # [S, D]
        deepstack = np.zeros((num_taps, *embeds.shape), np.float32)
        for target, image, source in Chunk(prompt, images, start, stop).image_parts():
            embeds[target] = image.embeds[source]
            deepstack[:, target] = image.deepstack[:, source]
        binding = cache.binding(self._prefill, slot, 1)
        if num_taps:
            binding.bind_cpu_input("deepstack", deepstack)
        # Rows before `start` go unread, but the operator wants a row for each token in the cache.
        cos, sin = self._rope(prompt.positions[:, :stop])
        rows = np.arange(start, stop)[None]
        return self._step(
            self._prefill, binding, embeds[None], [stop], select, rows, cos, sin, prompt=True
        )

    def decode(
        self,
        cache: OnnxCache,
        first_slot: int,
        ids: Sequence[int],
        lengths: Sequence[int],
        positions: Sequence[int],
    ) -> Float:
        """One token for each of neighbouring slots. Returns logits [B, vocab]."""
        batch = len(ids)
        embeds = widen(self._embedding[np.asarray(ids, np.int64)])  # [B, D]
        binding = cache.binding(self._decode, first_slot, batch)
        if self._decode_takes_deepstack:
            num_taps = len(self.config.vision.deepstack_layers)
            binding.bind_cpu_input("deepstack", np.zeros((num_taps, *embeds.shape), np.float32))
        rows = np.asarray(positions, np.int64)[:, None]  # a text token's position is its row
        totals = [length + 1 for length in lengths]
        # Binding copies: no more rows than are read, or than the operator insists on.
        num_rows = max(*totals, *(position + 1 for position in positions))
        cos, sin = (table[:num_rows] for table in self._text_rope)
        hidden = self._step(
            self._decode,
            binding,
            embeds[:, None],
            totals,
            range(batch),
            rows,
            cos,
            sin,
            prompt=False,
        )
        return self.logits(hidden)

    def _step(
        self,
        session: ort.InferenceSession,
        binding: ort.IOBinding,
        embeds: Float,
        totals: Sequence[int],
        select: Sequence[int],
        rows: NDArray[np.int64],
        cos: Float,
        sin: Float,
        *,
        prompt: bool,
    ) -> Float:
        """embeds [B, S, D] of a `prompt`, or of a new token each; `totals` [B] are the lengths
        after the step. Returns [L, D]."""
        binding.bind_cpu_input("embeds", embeds)
        binding.bind_cpu_input("select", np.asarray(select, np.int64))
        binding.bind_cpu_input("lengths", np.asarray(totals, np.int32) - 1)
        binding.bind_cpu_input("total", np.asarray(max(totals), np.int32))
        binding.bind_cpu_input("rows", rows)
        binding.bind_cpu_input("cos", cos)
        binding.bind_cpu_input("sin", sin)
        if self._takes_prompt:
            binding.bind_cpu_input("prompt", np.asarray(prompt, np.int32))
        binding.bind_output("hidden")
        session.run_with_iobinding(binding)
        hidden: Float = binding.get_outputs()[-1].numpy()  # bound last
        return hidden

    def logits(self, hidden: Float) -> Float:
        """Final norm and LM head: [L, D] → [L, vocab]."""
        logits: Float = self._head.run(["logits"], {"hidden": hidden})[0]
        return logits


@contextmanager
def _environment_variable(name: str, value: str) -> Iterator[None]:
    """Set a variable for ONNX Runtime to read, and put back what was there."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
