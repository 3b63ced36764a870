"""The PyTorch engine: a checkpoint as it is, on a GPU or, as the reference, on the CPU."""

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
from qwink.engine.torch.cache import TorchCache, aligned, bytes_per_token
from qwink.engine.torch.device import choose_device, choose_dtype, device_name
from qwink.engine.torch.measure import measure_traits
from qwink.engine.torch.memory import DeviceMemory, check_weights, fit_slots
from qwink.engine.torch.quantize import check_method
from qwink.engine.torch.steps import Graphs, Steps
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

SPARE_SLOTS = 16  # they take no memory until they are used, on a CPU
_ARITHMETIC = "torch-1"  # part of every cache key; to be changed with what is computed


class TorchEngine:
    """Runs one checkpoint folder."""

    traits = Traits()  # on a GPU, measured when a cache is opened

    def __init__(
        self,
        folder: Path,
        device: str = "auto",
        dtype: str = "auto",
        threads: int | None = None,
        quantize: str | None = None,
        memory: DeviceMemory | None = None,
    ) -> None:
        """`threads` are those of a computation on the CPU; `quantize` is "int8" for text layers
        in 8 bits; `memory` tells what is free.

        Raises CheckpointError, OptionError for a device or type that is not there, OutOfMemory.
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
        """On the engine's device, whichever thread this is; out of memory is told as ours."""
        on_device = nullcontext() if self.device.type == "cpu" else torch.cuda.device(self.device)
        with on_device, self._memory.recovering(work, advice):
            yield

    def encode(self, images: Sequence[Patches]) -> list[EncodedImage]:
        """Run the vision encoder over images, all at once.

        The frames of a video attend each to itself.
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
            own = features[:, start:stop]
            key = image_key(image.key, self.artifact_id)
            encoded.append(EncodedImage(own[0], own[1:], image.grid, key))
            start = stop
        return encoded

    def open_cache(self, num_slots: int, capacity: int) -> TorchCache:
        """Slots for up to `num_slots` sequences of up to `capacity` tokens.

        Fewer where a GPU's memory holds no more; raises OutOfMemory where it holds not one.
        """
        text = self.config.text
        self._steps = None  # its graphs hold on to the cache before
        token_bytes = bytes_per_token(text, self.dtype)
        num_slots = fit_slots(num_slots, aligned(capacity) + 1, token_bytes, self._memory)
        with self._working("reserve keys and values", "lower --context"):
            cache = TorchCache(text, num_slots, capacity, self.device, self.dtype)
            self._rope = self._rope_tables(np.arange(capacity))
            if self.device.type == "cuda":
                self._steps = Steps(cache, partial(self._step, cache), Graphs(self.device))
        if self.device.type == "cuda" and num_slots > 1:
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

        Raises GenerationError if one of them is not a number.
        """
        num_tokens = sum(map(len, chunks))
        with self._working(f"run {num_tokens} tokens", "lower --context or --max-running"):
            total = aligned(max(chunk.stop for chunk in chunks))
            hidden = run_layers(self._modules, cache, total, self._tokens(chunks, cache.scratch))
            last = torch.tensor([len(chunk) - 1 for chunk in chunks])
            found: Float = to_host(hidden[torch.arange(len(chunks)), last].float())
        slots = [chunk.slot for chunk in chunks]
        self._check(cache, slots, np.isfinite(found.sum(axis=1)))
        return found

    def _tokens(self, chunks: Sequence[Chunk], scratch: int) -> Tokens:
        """Chunks as one batch, the shorter ones padded at the end."""
        batch, length = len(chunks), max(chunk.stop - chunk.start for chunk in chunks)
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
        cos, sin = self._rope_tables(positions.reshape(3, -1))
        shape = (batch, length, text.head_dim // 2)
        slots = [chunk.slot for chunk in chunks]
        return Tokens(
            to_device(np.array(slots), self.device),
            embeds,
            to_device(places, self.device),
            cos.view(shape),
            sin.view(shape),
            deepstack,
            _first_of_neighbours(slots),
        )

    def step(self, cache: TorchCache, runs: Sequence[NewTokens]) -> Float:
        """Run new tokens of answers, all at once: [sum of `num_logits`, vocab].

        Raises GenerationError if a run's logits are not numbers; runs can then be tried alone.
        """
        slots = [run.slot for run in runs]
        num_tokens = sum(len(run.ids) for run in runs)
        with self._working(f"decode {num_tokens} tokens", "lower --context or --max-running"):
            if num_tokens == len(runs):
                logits = self._single(cache, runs)
            else:
                logits = self._several(cache, runs)
            finite = to_host(logits.isfinite().all(dim=1))
            found: Float = to_host(logits)
        ends = np.cumsum([run.num_logits for run in runs])
        whole = [bool(part.all()) for part in np.split(finite, ends[:-1])]
        self._check(cache, slots, np.array(whole))
        return found

    def _single(self, cache: TorchCache, runs: Sequence[NewTokens]) -> Tensor:
        """One token for each slot: logits [B, vocab]."""
        rows = [(run.ids[0], run.length, run.position, run.slot) for run in runs]
        inputs = np.array(rows, np.int64).T
        if self._steps is not None and self._steps.cache is cache:
            return self._steps.run(inputs)
        total = aligned(max(run.length for run in runs) + 1)
        neighbours = _first_of_neighbours([run.slot for run in runs])
        return self._step(cache, to_device(inputs, self.device), total, neighbours)

    def _step(
        self, cache: TorchCache, inputs: Tensor, total: int, neighbours: int | None = None
    ) -> Tensor:
        """inputs [4, B]: ids, places, positions, slots → logits [B, vocab]. Graphs record it."""
        ids, places, positions, slots = inputs
        cos, sin = (table[positions][:, None] for table in self._rope)
        embeds = self._modules.embed_tokens[ids][:, None]
        tokens = Tokens(slots, embeds, places[:, None], cos, sin, neighbours=neighbours)
        return run_head(self._modules, run_layers(self._modules, cache, total, tokens)[:, 0])

    def _several(self, cache: TorchCache, runs: Sequence[NewTokens]) -> Tensor:
        """Several tokens for some of the slots, the shorter runs padded: logits [L, vocab]."""
        batch, length = len(runs), max(len(run.ids) for run in runs)
        inputs = np.zeros((3, batch, length), np.int64)  # ids, places, positions
        inputs[1] = cache.scratch
        for row, run in enumerate(runs):
            size = len(run.ids)
            counts = np.arange(size)
            inputs[:, row, :size] = run.ids, run.length + counts, run.position + counts
        ids, places, positions = to_device(inputs, self.device)
        cos, sin = (table[positions] for table in self._rope)
        slots = [run.slot for run in runs]
        tokens = Tokens(
            to_device(np.array(slots), self.device),
            self._modules.embed_tokens[ids],
            places,
            cos,
            sin,
            neighbours=_first_of_neighbours(slots),
        )
        total = aligned(max(run.length + len(run.ids) for run in runs))
        hidden = run_layers(self._modules, cache, total, tokens)
        wanted = [
            hidden[row, len(run.ids) - run.num_logits : len(run.ids)]
            for row, run in enumerate(runs)
        ]
        return run_head(self._modules, torch.cat(wanted))

    def logits(self, hidden: Float) -> Float:
        """Final norm and LM head: [L, D] → [L, vocab]."""
        with self._working("compute logits", "lower --max-running"):
            rows = to_device(hidden, self.device).to(self.dtype)
            found: Float = to_host(run_head(self._modules, rows))
        return found

    def _check(self, cache: TorchCache, slots: Sequence[int], finite: NDArray[np.bool_]) -> None:
        """Raises GenerationError unless the values of all slots are numbers."""
        if finite.all():
            return
        if len(finite) == 1:
            cache.clear(slots[0])
        advice = "use --dtype float32" if self.dtype == torch.float16 else "check the checkpoint"
        dtype = self.about["dtype"]
        raise GenerationError(f"the model's values went beyond numbers in {dtype}; {advice}")


def _first_of_neighbours(slots: Sequence[int]) -> int | None:
    """The first slot, if each of the others follows the one before it."""
    return slots[0] if list(slots) == list(range(slots[0], slots[0] + len(slots))) else None
