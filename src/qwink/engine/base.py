"""What an engine must do. Arrays in, arrays out: it knows nothing of text, files or requests.

An engine encodes images, and runs prompts and single steps over the slots of a `KVCache` that it
opened. It is driven by one thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from qwink.model.config import ModelConfig
from qwink.types import EncodedImage, Patches, Prompt


class KVCache(Protocol):
    """Keys and values of `num_slots` sequences of up to `capacity` tokens each."""

    @property
    def num_slots(self) -> int: ...

    @property
    def capacity(self) -> int: ...

    @property
    def bytes_per_token(self) -> int: ...

    @property
    def grows(self) -> bool:
        """Whether memory is taken as tokens come, and not all at once at the start."""

    def copy(self, source: int, target: int, num_tokens: int) -> None:
        """Overwrite the start of slot `target` with that of slot `source`."""

    def read(self, slot: int, num_tokens: int) -> NDArray[Any]:
        """A copy of a slot's start: [layers, 2, KV heads, num_tokens, head_dim]."""

    def write(self, slot: int, values: NDArray[Any]) -> None:
        """Put what `read` gave at the start of a slot."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What an engine gains from, as measured: how many at once take the least time each."""

    encode_batch: int = 1  # images
    prefill_batch: int = 1  # prompts


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Tokens `start` to `stop` of a prompt, and the images of its spans by key."""

    prompt: Prompt
    images: Mapping[str, EncodedImage]
    start: int
    stop: int

    def image_parts(self) -> Iterator[tuple[slice, EncodedImage, slice]]:
        """Where in the chunk images go, and which of their tokens: (chunk, image, image)."""
        for span in self.prompt.images:
            low, high = max(self.start, span.start), min(self.stop, span.start + span.length)
            if low < high:
                target = slice(low - self.start, high - self.start)
                yield target, self.images[span.key], slice(low - span.start, high - span.start)


class Engine(Protocol):
    """Encode, prefill, decode."""

    @property
    def config(self) -> ModelConfig: ...

    @property
    def name(self) -> str:
        """The model's, for people."""

    @property
    def artifact_id(self) -> str:
        """Of the model and how it is computed: part of every cache key."""

    @property
    def traits(self) -> Traits: ...

    @property
    def about(self) -> dict[str, str]:
        """The engine's name as "engine", and how it computes."""

    def encode(self, patches: Patches) -> EncodedImage:
        """Run the vision encoder over one image."""

    def encode_many(self, images: Sequence[Patches]) -> list[EncodedImage]:
        """As `encode`, for several; worth it up to `traits.encode_batch`."""

    def open_cache(self, num_slots: int, capacity: int) -> Any:
        """A KVCache of this engine, of up to `num_slots`: fewer where memory holds no more.

        Raises OutOfMemory when it holds not one.
        """

    def prefill(
        self,
        cache: Any,
        slot: int,
        prompt: Prompt,
        images: Mapping[str, EncodedImage],
        start: int,
        stop: int,
    ) -> NDArray[np.float32]:
        """Run tokens `start` to `stop` of the prompt into `slot`, which holds those before.

        `images` maps the keys of the prompt's spans. Returns the hidden state of the last token
        [D]; `logits` turns it into scores when it is the prompt's last.
        """

    def prefill_many(
        self, cache: Any, first_slot: int, chunks: Sequence[Chunk]
    ) -> NDArray[np.float32]:
        """As `prefill`, a chunk for each of neighbouring slots: [B, D].

        Worth it up to `traits.prefill_batch`.
        """

    def decode(
        self,
        cache: Any,
        first_slot: int,
        ids: Sequence[int],
        lengths: Sequence[int],
        positions: Sequence[int],
    ) -> NDArray[np.float32]:
        """One token for each of `len(ids)` neighbouring slots from `first_slot`.

        `lengths` are the tokens already in each slot, `positions` the M-RoPE positions of the new
        ones. Returns logits [B, vocab].
        """

    def logits(self, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
        """Final norm and LM head: [L, D] → [L, vocab]."""


def image_key(patches_key: str, artifact_id: str) -> str:
    """The key of an encoded image: all that determines the patches, and the encoder."""
    return f"{patches_key}-{artifact_id[:16]}"
