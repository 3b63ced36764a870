"""The PyTorch engine: a checkpoint as it is, on a GPU or, as the reference, on the CPU."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qwink.engine.base import Chunk, Traits, image_key
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
from qwink.types import EncodedImage, Patches, Prompt

Float = NDArray[np.float32]
Ints = NDArray[np.int64]

_ARITHMETIC = "torch-1"  # part of every cache key; to be changed with what is computed


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

    def encode(self, patches: Patches) -> EncodedImage:
        """Run the vision encoder over one image; a video's frames attend each to itself."""
        return self.encode_many([patches])[0]

    def encode_many(self, images: Sequence[Patches]) -> list[EncodedImage]:
        """As `encode`, several at once."""
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
                self._steps = Steps(cache, partial(self._step, cache, 0), Graphs(self.device))
        if self.device.type == "cuda" and num_slots > 1:
            self.traits = measure_traits(self, cache)
        return cache

    def _rope_tables(self, positions: Ints) -> tuple[Tensor, Tensor]:
        """Rotations [..., S, head_dim / 2] for positions [S] (text) or [3, S]."""
        text = self.config.text
        axes = np.broadcast_to(positions, (3, positions.shape[-1]))
        cos, sin = rope_table(axes, text.head_dim, text.rope_theta, text.mrope_section)
        return to_device(cos, self.device), to_device(sin, self.device)

    def prefill(
        self,
        cache: TorchCache,
        slot: int,
        prompt: Prompt,
        images: Mapping[str, EncodedImage],
        start: int,
        stop: int,
    ) -> Float:
        """Run tokens `start` to `stop` into `slot`. Returns the last one's hidden state [D]."""
        chunk = Chunk(prompt, images, start, stop)
        hidden: Float = self.prefill_many(cache, slot, [chunk])[0]
        return hidden

    def prefill_many(self, cache: TorchCache, first_slot: int, chunks: Sequence[Chunk]) -> Float:
        """A chunk for each of neighbouring slots. Returns hidden states [B, D].

        Raises GenerationError if one of them is not a number.
        """
        num_tokens = sum(chunk.stop - chunk.start for chunk in chunks)
        with self._working(f"run {num_tokens} tokens", "lower --context or --max-running"):
            total = aligned(max(chunk.stop for chunk in chunks))
            tokens = self._tokens(chunks, cache.scratch)
            hidden = run_layers(self._modules, cache, first_slot, total, tokens)
            last = torch.tensor([chunk.stop - chunk.start - 1 for chunk in chunks])
            rows = hidden[torch.arange(len(chunks)), last]
            found: Float = to_host(rows.float())
        self._check(cache, first_slot, np.isfinite(found.sum(axis=1)))
        return found

    def _tokens(self, chunks: Sequence[Chunk], scratch: int) -> Tokens:
        """Chunks as one batch, the shorter ones padded at the end."""
        batch, length = len(chunks), max(chunk.stop - chunk.start for chunk in chunks)
        text, num_taps = self.config.text, len(self.config.vision.deepstack_layers)
        ids = np.zeros((batch, length), np.int64)
        places = np.full((batch, length), scratch, np.int64)
        positions = np.zeros((3, batch, length), np.int64)
        for row, chunk in enumerate(chunks):
            span, size = slice(chunk.start, chunk.stop), chunk.stop - chunk.start
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
        half = text.head_dim // 2
        shape = (batch, length, half)
        where = to_device(places, self.device)
        return Tokens(embeds, where, cos.view(shape), sin.view(shape), deepstack)

    def decode(
        self,
        cache: TorchCache,
        first_slot: int,
        ids: Sequence[int],
        lengths: Sequence[int],
        positions: Sequence[int],
    ) -> Float:
        """One token for each of neighbouring slots. Returns logits [B, vocab].

        Raises GenerationError if a row of them is not numbers; rows can then be tried alone.
        """
        inputs = np.array([ids, lengths, positions], np.int64)
        with self._working(f"decode {len(ids)} tokens", "lower --context or --max-running"):
            if self._steps is not None and self._steps.cache is cache and first_slot == 0:
                logits = self._steps.run(inputs)
            else:
                given = to_device(inputs, self.device)
                logits = self._step(cache, first_slot, given, aligned(max(lengths) + 1))
            finite = to_host(logits.isfinite().all(dim=1))
            found: Float = to_host(logits)
        self._check(cache, first_slot, finite)
        return found

    def _step(self, cache: TorchCache, first_slot: int, inputs: Tensor, total: int) -> Tensor:
        """inputs [3, B]: ids, places, positions → logits [B, vocab]. What a graph records."""
        ids, places, positions = inputs
        cos, sin = (table[positions][:, None] for table in self._rope)
        embeds = self._modules.embed_tokens[ids][:, None]
        tokens = Tokens(embeds, places[:, None], cos, sin)
        hidden = run_layers(self._modules, cache, first_slot, total, tokens)
        return run_head(self._modules, hidden[:, 0])

    def logits(self, hidden: Float) -> Float:
        """Final norm and LM head: [L, D] → [L, vocab]."""
        with self._working("compute logits", "lower --max-running"):
            rows = to_device(hidden, self.device).to(self.dtype)
            found: Float = to_host(run_head(self._modules, rows))
        return found

    def _check(self, cache: TorchCache, first_slot: int, finite: NDArray[np.bool_]) -> None:
        """Raises GenerationError unless all rows are numbers."""
        if finite.all():
            return
        if len(finite) == 1:
            cache.clear(first_slot)
        advice = "use --dtype float32" if self.dtype == torch.float16 else "check the checkpoint"
        dtype = self.about["dtype"]
        raise GenerationError(f"the model's values went beyond numbers in {dtype}; {advice}")
