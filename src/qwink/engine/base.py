"""What an engine must do. Arrays in, arrays out: it knows nothing of text, files or requests.

An engine encodes images, and runs prompts and single steps over the slots of a `KVCache` that it
opened. It is driven by one thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

    def copy(self, source: int, target: int, num_tokens: int) -> None:
        """Overwrite the start of slot `target` with that of slot `source`."""


class Engine(Protocol):
    """Encode, prefill, decode."""

    @property
    def config(self) -> ModelConfig: ...

    @property
    def artifact_id(self) -> str: ...

    def encode(self, patches: Patches) -> EncodedImage:
        """Run the vision encoder over one image."""

    def open_cache(self, num_slots: int, capacity: int) -> Any:
        """A KVCache of this engine; memory is taken as tokens come."""

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
