"""What an engine must do. Arrays in, arrays out; no text, files or requests.

An engine encodes images, runs prompts, and runs the steps of answers over the slots of a `KVCache`
that it opened. One thread drives it.
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
    """Keys and values of `num_slots` sequences of up to `capacity` tokens each.

    A slot does not record how many tokens it holds: each pass says where its tokens go, and
    tokens are given back by naming a smaller number the next time.
    """

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
        """Overwrite the first tokens of slot `target` with those of slot `source`."""

    def read(self, slot: int, num_tokens: int) -> NDArray[np.float32]:
        """A copy of a slot's first tokens, to be looked at: [layers, 2, KV heads, tokens, d]."""

    def truncate(self, slot: int, num_tokens: int) -> None:
        """Keep the first tokens of a slot; return the memory behind them to the system."""


@dataclass(frozen=True, slots=True)
class Traits:
    """How an engine is used best, and what it guarantees.

    `encode_batch`, `prefill_batch`: how many images and prompts at once take the least time each,
    as measured. `cheap_rows`: how many tokens of a step take little longer than one. `spare_slots`:
    slots for prompts that are kept, beyond those in use, if slots take memory only as they fill.
    `invariant`: whether a token's result is the same to the last bit for any other tokens in the
    step and any division of the prompt into chunks.
    """

    encode_batch: int = 1
    prefill_batch: int = 1
    cheap_rows: int = 1
    spare_slots: int = 0
    invariant: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Tokens `start` to `stop` of a prompt, for a slot that holds the tokens before `start`.

    `images` maps the keys of the prompt's spans to encoded images.
    """

    slot: int
    prompt: Prompt
    images: Mapping[str, EncodedImage]
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def image_parts(self) -> Iterator[tuple[slice, EncodedImage, slice]]:
        """Where in the chunk images go, and which of their tokens: (chunk, image, image)."""
        for span in self.prompt.images:
            low, high = max(self.start, span.start), min(self.stop, span.start + span.length)
            if low < high:
                target = slice(low - self.start, high - self.start)
                yield target, self.images[span.key], slice(low - span.start, high - span.start)


@dataclass(frozen=True, slots=True)
class NewTokens:
    """One or more tokens of an answer, for a slot that holds the `length` tokens before them.

    `position` is the M-RoPE position of the first. The logits behind the last `num_logits` of
    them are wanted.
    """

    slot: int
    ids: tuple[int, ...]
    length: int
    position: int
    num_logits: int = 1


class Engine(Protocol):
    """Encode, prefill, step.

    Prompts and answers are two kinds of pass, because they may use different weights. Tokens of a
    prompt give the same keys and values wherever the prompt is cut into chunks, and a token of an
    answer gives the same logits alone as beside others: to the last bit if `traits.invariant`,
    else up to rounding.
    """

    @property
    def config(self) -> ModelConfig: ...

    @property
    def name(self) -> str:
        """The model's name, for people."""

    @property
    def artifact_id(self) -> str:
        """Identifies the model and its arithmetic: part of every cache key."""

    @property
    def traits(self) -> Traits: ...

    @property
    def bytes_per_token(self) -> int:
        """Main memory for the keys and values of a token; 0 where they lie in a device's."""

    @property
    def about(self) -> dict[str, str]:
        """The engine's name as "engine", and how it computes."""

    def encode(self, images: Sequence[Patches]) -> list[EncodedImage]:
        """Run the vision encoder over images; more than `traits.encode_batch` gain nothing."""

    def encode_parts(self, images: Sequence[Patches]) -> Iterator[list[EncodedImage] | None]:
        """As `encode`, in parts of less time each: gives None after each part but the last, and
        then the encoded images, the same to the last bit. Other passes may run between two parts.
        """

    def open_cache(self, num_slots: int, capacity: int) -> Any:
        """A KVCache of this engine, of up to `num_slots`: fewer where memory holds no more.

        Raises OutOfMemory when it does not hold one.
        """

    def prefill(self, cache: Any, chunks: Sequence[Chunk]) -> NDArray[np.float32]:
        """Run chunks of prompts, each into its slot; no slot twice.

        Returns the hidden state behind each chunk's last token [len(chunks), D]; `logits` turns
        it into scores. More than `traits.prefill_batch` chunks gain nothing.
        """

    def step(self, cache: Any, runs: Sequence[NewTokens]) -> NDArray[np.float32]:
        """Run new tokens of answers, each run into its slot; no slot twice.

        Returns logits [sum of `num_logits`, vocab], in the order of the runs and their tokens.
        """

    def logits(self, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
        """Final norm and LM head: [L, D] → [L, vocab]."""


def last(parts: Iterator[list[EncodedImage] | None]) -> list[EncodedImage]:
    """The result of `Engine.encode_parts`."""
    *_, encoded = parts
    assert encoded is not None
    return encoded


def image_key(patches_key: str, artifact_id: str) -> str:
    """The key of an encoded image: all that determines the patches, and the encoder."""
    return f"{patches_key}-{artifact_id[:16]}"
