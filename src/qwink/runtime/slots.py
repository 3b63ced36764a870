"""Slots of the KV cache: which are in use, and which prompts the idle ones still hold.

The keys and values of a prompt stay in their slot when its answer is finished, until room is
needed. A later prompt with the same start takes the slot over, or copies the start. Those of the
answer's tokens are not kept: an answer's step may use other weights than a prompt's pass, and the
result must not depend on what a cache holds.

A prompt is identified by its token ids *and* its images' keys: all images share one placeholder
token, so ids alone would give one picture's keys and values to a question about another. Both are
compared in full, not by hash.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from qwink.engine.base import KVCache
from qwink.runtime.chunks import Chunks
from qwink.types import ImageSpan, Prompt

logger = logging.getLogger(__name__)

Ids = NDArray[np.int64]
Float = NDArray[np.float32]

MIN_REUSE = 8  # tokens; to compute fewer takes no longer than to copy them
MAX_LOSS = 64  # tokens of an idle prompt that are given up rather than copying its start


@dataclass(frozen=True, slots=True, eq=False)
class Lease:
    """A slot in use, whose first `num_reused` tokens are there already.

    `logits` [vocab] follow the prompt's last token, if all of the prompt is there.
    """

    slot: int
    num_reused: int = 0
    logits: Float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """What a slot holds: the first `num_tokens` of a prompt, computed by prompt passes."""

    prompt: Prompt
    num_tokens: int
    logits: Float | None = None


class Slots:
    """Gives slots to prompts. Used by the engine's thread only.

    Slots in use reserve `max_bytes` for the most tokens that their requests may take; idle ones
    hold what is left of it, and the least recently used are emptied first.
    """

    def __init__(
        self, cache: KVCache, max_bytes: int, chunks: Chunks, *, keep: bool = True
    ) -> None:
        """`chunks` says where a prompt may go on; `keep`: whether idle slots hold their prompts."""
        self.max_bytes, self._cache, self._chunks, self._keep = max_bytes, cache, chunks, keep
        self._token_bytes = cache.bytes_per_token
        self.hits = self.misses = self.evictions = 0
        self._held: dict[int, _Held] = {}  # by slot; idle ones in the order of their last use
        self._reserved: dict[int, int] = {}  # tokens of each slot in use

    def __len__(self) -> int:
        """Idle slots that hold a prompt."""
        return len(self._held.keys() - self._reserved.keys())

    @property
    def num_bytes(self) -> int:
        """Memory of the prompts that idle slots hold."""
        idle = list(self._held.items())
        tokens = sum(held.num_tokens for slot, held in idle if slot not in self._reserved)
        return tokens * self._token_bytes

    @property
    def reserved_bytes(self) -> int:
        """Memory that the slots in use may take."""
        return sum(list(self._reserved.values())) * self._token_bytes

    def close(self) -> None:
        """Release the cache. Afterwards only sizes and counts can be read."""
        self._held.clear()
        self._reserved.clear()
        del self._cache

    def acquire(self, prompt: Prompt, num_tokens: int) -> Lease | None:
        """A slot for a prompt and its answer, `num_tokens` in all; None while there is no room.

        A request that runs alone gets a slot, even if it needs more than the limit.
        """
        wanted = num_tokens * self._token_bytes
        all_in_use = len(self._reserved) == self._cache.num_slots
        if all_in_use or (self._reserved and self._exceeds(self.reserved_bytes + wanted)):
            return None
        source, length = self._find(prompt)
        if source is None:
            self.misses += 1
        else:
            self.hits += 1
        held = None if source is None else self._held[source]
        slot = self._choose(source, length)
        if slot != source:
            self._evict(slot)
            if source is not None and not self._copied(source, slot, length):
                held, length = None, 0
        whole = held is not None and length == len(prompt)
        logits = held.logits if held is not None and whole else None
        self._held[slot] = _Held(prompt, length, logits)
        self._reserved[slot] = num_tokens
        self._make_room()
        return Lease(slot, length, logits)

    def num_known(self, prompt: Prompt) -> int:
        """How many of a prompt's first tokens need not be computed, as things are."""
        return self._find(prompt)[1]

    def advance(self, lease: Lease, num_tokens: int, logits: Float | None = None) -> None:
        """Note that a prompt's first `num_tokens` are computed, and the logits behind the last."""
        self._held[lease.slot] = replace(
            self._held[lease.slot], num_tokens=num_tokens, logits=logits
        )

    def release(self, lease: Lease, *, valid: bool = True) -> None:
        """Take a slot back; `valid`: its prompt can be used again."""
        slot = lease.slot
        del self._reserved[slot]
        held = self._held.pop(slot)
        keep = self._keep and valid and held.num_tokens >= MIN_REUSE
        self._cache.truncate(slot, held.num_tokens if keep else 0)
        if keep:
            self._held[slot] = held  # the last of the order: the most recently used
        self._make_room()

    def _exceeds(self, num_bytes: int) -> bool:
        return self._cache.grows and num_bytes > self.max_bytes

    def _find(self, prompt: Prompt) -> tuple[int | None, int]:
        """The slot that shares the longest start with a prompt, and how much of it can be used."""
        best, longest = None, 0
        for slot, held in self._held.items():
            known = held.prompt
            shared = common_start(prompt.ids, prompt.images, known.ids, known.images)
            usable = min(shared, held.num_tokens)
            if usable == len(prompt) and (held.logits is None or usable < held.num_tokens):
                usable -= 1  # the last token must run, to give logits
            usable = self._chunks.usable(prompt, usable)
            if usable > longest:
                best, longest = slot, usable
        return (best, longest) if longest >= MIN_REUSE else (None, 0)

    def _idle(self) -> list[int]:
        """Idle slots that hold a prompt, the least recently used first."""
        return [slot for slot in self._held if slot not in self._reserved]

    def _choose(self, source: int | None, length: int) -> int:
        """The slot for a prompt whose first `length` tokens are in `source`."""
        idle = self._idle()
        if source in idle and self._held[source].num_tokens - length <= MAX_LOSS:
            return source
        for slot in range(self._cache.num_slots):
            if slot not in self._held:
                return slot
        return next((slot for slot in idle if slot != source), idle[0])

    def _copied(self, source: int, target: int, num_tokens: int) -> bool:
        """Copy the start of a slot; False where that fails, because memory is short, say."""
        try:
            self._cache.copy(source, target, num_tokens)
        except Exception:
            logger.exception("a known start could not be copied; it is computed again")
            return False
        return True

    def _make_room(self) -> None:
        """Empty idle slots, the least recently used first, until all fit."""
        for slot in self._idle():
            if not self._exceeds(self.num_bytes + self.reserved_bytes):
                return
            self._evict(slot)

    def _evict(self, slot: int) -> None:
        if self._held.pop(slot, None) is not None:
            self._cache.truncate(slot, 0)
            self.evictions += 1


def common_start(
    ids: Ids, images: Sequence[ImageSpan], other: Ids, other_images: Sequence[ImageSpan]
) -> int:
    """How many tokens two prompts share from the start, pictures included."""
    length = min(len(ids), len(other))
    different = np.flatnonzero(ids[:length] != other[:length])
    if different.size:
        length = int(different[0])
    known = {span.start: span for span in other_images}
    for span in images:
        if span.start < length and known.get(span.start) != span:
            return span.start
    return length
