"""The PyTorch engine: runs a checkpoint as it is, on a GPU, or on the CPU as the reference."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qwink.engine.base import Chunk, NewTokens, Traits, image_key
from qwink.engine.threads import physical_cores
from qwink.engine.torch.cache import TorchCache, aligned, bytes_per_token, neighbours
from qwink.engine.torch.device import choose_device, choose_dtype, device_name
from qwink.engine.torch.measure import measure_traits
from qwink.engine.torch.memory import DeviceMemory, check_weights, fit_slots
from qwink.engine.torch.quantize import check_method
from qwink.engine.torch.steps import Graphs, Steps, step_inputs
from qwink.engine.torch.text import Tokens, run_head, run_layers
from qwink.engine.torch.transfer import to_device, to_host
from qwink.engine.torch.vision import VisionEncoder
from qwink.engine.torch.weights import load_modules, weight_bytes
from qwink.errors import GenerationError
from qwink.model.config import load_config
from qwink.model.rope import rope_table
from qwink.model.weights import fingerprint
from qwink.types import EncodedImage, Patches

Float = NDArray[np.float32]
Ints = NDArray[np.int64]

SPARE_SLOTS = 16  # on a CPU; they take no memory until they are used
# Part of every cache key. Change it when results change.
_ARITHMETIC = "torch-1"


class TorchEngine:
    """Runs one checkpoint folder."""

    traits = Traits()  # measured when a cache is opened on a GPU

    def __init__(
        self,
        folder: Path,
        device: str = "auto",
        dtype: str = "auto",
        threads: int | None = None,
        quantize: str | None = None,
        memory: DeviceMemory | None = None,
    ) -> None:
        """Load a checkpoint. `threads` is the number of threads of a computation on the CPU.

        `quantize` is "int8" for text layers in 8 bits, or None. `memory` counts the free memory.

        Raises CheckpointError, OptionError for a device or type that this machine does not have,
        OutOfMemory.
        """
        self.config = load_config(folder)
        self.device = choose_device(device)
        self.dtype = choose_dtype(dtype, self.device)
        self.threads = threads or physical_cores()
        if self.device.type == "cpu":
            torch.set_num_threads(self.threads)
            self.traits = replace(self.traits, spare_slots=SPARE_SLOTS)
        self._memory = memory or DeviceMemory(self.device)
        check_method(quantize)
        self._quantize = quantize
        identity = f"{_ARITHMETIC}-{self.dtype}-{quantize}-{fingerprint(folder)}"
        self.artifact_id = hashlib.sha256(identity.encode()).hexdigest()
        quantized = quantize is not None
        check_weights(weight_bytes(self.config, self.dtype, quantized), self._memory)
        with self._working("load the model", "use a smaller one, or --device cpu"):
            self._modules = load_modules(folder, self.config, self.device, self.dtype, quantized)
        self._vision = VisionEncoder(self._modules, self.config.vision, self.device, self.dtype)
        self._rope = self._rope_tables(np.arange(0))
        self._steps: Steps | None = None  # of the cache opened last

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def bytes_per_token(self) -> int:
        on_cpu = self.device.type == "cpu"
        return bytes_per_token(self.config.text, self.dtype) if on_cpu else 0

    @property
    def about(self) -> dict[str, str]:
        dtype = str(self.dtype).removeprefix("torch.")
        found = {"engine": "torch", "device": device_name(self.device), "dtype": dtype}
        return found if self._quantize is None else found | {"quantize": self._quantize}

    @contextmanager
    def _working(self, work: str, advice: str) -> Iterator[None]:
        """Make the engine's device this thread's; turn PyTorch's out-of-memory into OutOfMemory."""
        on_device = nullcontext() if self.device.type == "cpu" else torch.cuda.device(self.device)
        with on_device, self._memory.recovering(work, advice):
            yield

    def encode(self, images: Sequence[Patches]) -> list[EncodedImage]:
        """Run the vision encoder over images, all at once.

        The patches of a video's frame attend to that frame only. Raises OutOfMemory.
        """
        if not images:
            return []
        total = sum(image.grid.num_patches for image in images)
        with self._working(f"encode {total} patches", "lower max_pixels"):
            features = to_host(self._vision.encode(images).float())  # [1 + taps, V, D]
        features.flags.writeable = False
        encoded, start = [], 0
        for image in images:
            stop = start + image.grid.num_patches // self.config.vision.merge_size**2
            part = features[:, start:stop]
            key = image_key(image.key, self.artifact_id)
            encoded.append(EncodedImage(part[0], part[1:], image.grid, key))
            start = stop
        return encoded

    def open_cache(self, num_slots: int, capacity: int) -> TorchCache:
        """Slots for up to `num_slots` sequences of up to `capacity` tokens.

        Fewer where a GPU's memory holds no more. Raises OutOfMemory where it does not hold one.
        """
        text = self.config.text
        self._steps = None  # its graphs keep the previous cache alive
        token_bytes = bytes_per_token(text, self.dtype)
        num_slots = fit_slots(num_slots, aligned(capacity) + 1, token_bytes, self._memory)
        with self._working("reserve keys and values", "lower --context"):
            cache = TorchCache(text, num_slots, capacity, self.device, self.dtype)
            # A text token's position is at most its number in the sequence.
            if capacity > len(self._rope[0]):
                self._rope = self._rope_tables(np.arange(capacity))
            if self.device.type == "cuda":
                self._steps = Steps(cache, partial(self._run, cache), Graphs(self.device))
        if self.device.type == "cuda":
            self.traits = measure_traits(self, cache)
        return cache

    def _rope_tables(self, positions: Ints) -> tuple[Tensor, Tensor]:
        """Rotations [..., S, head_dim / 2] for positions [S] (text) or [3, S]."""
        text = self.config.text
        axes = np.broadcast_to(positions, (3, positions.shape[-1]))
        cos, sin = rope_table(axes, text.head_dim, text.rope_theta, text.mrope_section)
        return to_device(cos, self.device), to_device(sin, self.device)

    def prefill(self, cache: TorchCache, chunks: Sequence[Chunk]) -> Float:
        """Run chunks of prompts, all at once. Returns hidden states [len(chunks), D].

        Raises OutOfMemory, and GenerationError if one of them is not finite; the chunks can then
        be tried one by one.
        """
        num_tokens = sum(map(len, chunks))
        with self._working(f"run {num_tokens} tokens", "lower --context or --max-running"):
            total = aligned(max(chunk.stop for chunk in chunks))
            hidden = run_layers(self._modules, cache, total, self._tokens(chunks, cache.scratch))
            last = np.array([[row, len(chunk) - 1] for row, chunk in enumerate(chunks)])
            found: Float = to_host(self._select(hidden, last).float())
        spans = [(chunk.slot, chunk.start, chunk.stop) for chunk in chunks]
        self._check(cache, spans, bool(np.isfinite(found).all()))
        return found

    def _tokens(self, chunks: Sequence[Chunk], scratch: int) -> Tokens:
        """Chunks as one batch, the shorter ones padded at the end."""
        batch, length = len(chunks), max(map(len, chunks))
        text, num_taps = self.config.text, len(self.config.vision.deepstack_layers)
        ids = np.zeros((batch, length), np.int64)
        places = np.full((batch, length), scratch, np.int64)
        positions = np.zeros((3, batch, length), np.int64)
        for row, chunk in enumerate(chunks):
            span, size = slice(chunk.start, chunk.stop), len(chunk)
            ids[row, :size] = chunk.prompt.ids[span]
            places[row, :size] = np.arange(chunk.start, chunk.stop)
            positions[:, row, :size] = chunk.prompt.positions[:, span]
        embeds = self._modules.embed_tokens[to_device(ids, self.device)]  # [B, S, D]
        deepstack = None
        for row, chunk in enumerate(chunks):
            for target, image, source in chunk.image_parts():
                if deepstack is None and num_taps:
                    deepstack = embeds.new_zeros(num_taps, *embeds.shape)
                part = to_device(image.embeds[source], self.device)
                embeds[row, target] = part.to(self.dtype)
                if deepstack is not None:
                    part = to_device(image.deepstack[:, source], self.device)
                    deepstack[:, row, target] = part.to(self.dtype)
        shape = (batch, length, text.head_dim // 2)
        cos, sin = (table.view(shape) for table in self._rope_tables(positions.reshape(3, -1)))
        slots = [chunk.slot for chunk in chunks]
        on_device = to_device(np.array(slots, np.int64), self.device)
        where = to_device(places, self.device)
        return Tokens(on_device, embeds, where, cos, sin, deepstack, neighbours(slots))

    def step(self, cache: TorchCache, runs: Sequence[NewTokens]) -> Float:
        """Run new tokens of answers, all at once. Returns logits [sum of `num_logits`, vocab].

        Raises OutOfMemory, and GenerationError if some of them are not finite; the runs can then
        be tried one by one.
        """
        inputs = step_inputs(runs, cache.scratch)
        spans = [(run.slot, run.length, run.length + len(run.ids)) for run in runs]
        total = max(stop for _, _, stop in spans)
        wanted = [
            [row, column]
            for row, run in enumerate(runs)
            for column in range(len(run.ids) - run.num_logits, len(run.ids))
        ]
        num_tokens = sum(len(run.ids) for run in runs)
        with self._working(f"decode {num_tokens} tokens", "lower --context or --max-running"):
            if self._steps is not None and self._steps.cache is cache:
                hidden = self._steps.run(inputs, total)
            else:
                window = neighbours([run.slot for run in runs])
                hidden = self._run(cache, to_device(inputs, self.device), aligned(total), window)
            logits = run_head(
                self._modules, self._select(hidden, np.array(wanted, np.int64).reshape(-1, 2))
            )
            finite = bool(logits.isfinite().all())
            found: Float = to_host(logits)
        self._check(cache, spans, finite)
        return found

    def _run(self, cache: TorchCache, inputs: Tensor, total: int, window: slice | None) -> Tensor:
        """Inputs of `step_inputs` → hidden states [B, S, D]. What a graph records."""
        slots, ids, places, positions = inputs
        cos, sin = (table[positions] for table in self._rope)
        embeds = self._modules.embed_tokens[ids]
        tokens = Tokens(slots[:, 0], embeds, places, cos, sin, window=window)
        return run_layers(self._modules, cache, total, tokens)

    def _select(self, hidden: Tensor, wanted: Ints) -> Tensor:
        """Rows of hidden states [B, S, D], given (sequence, token) [L, 2] → [L, D]."""
        rows, columns = to_device(wanted, self.device).T
        return hidden[rows, columns]

    def logits(self, hidden: Float) -> Float:
        """Final norm and LM head: [L, D] → [L, vocab]."""
        with self._working("compute logits", "lower --max-running"):
            rows = to_device(hidden, self.device).to(self.dtype)
            found: Float = to_host(run_head(self._modules, rows))
        return found

    def _check(
        self, cache: TorchCache, spans: Sequence[tuple[int, int, int]], finite: bool
    ) -> None:
        """Raises GenerationError unless a pass's values are finite.

        Wipes the tokens that the pass wrote, `spans` being (slot, start, stop): a NaN in the cache
        would also spoil tokens that do not attend to it.
        """
        if finite:
            return
        for span in spans:
            cache.clear(*span)
        advice = "use --dtype float32" if self.dtype == torch.float16 else "check the checkpoint"
        dtype = self.about["dtype"]
        raise GenerationError(f"the model computed infinities or NaNs in {dtype}; {advice}")
