"""Measures what an engine gains from batches, on the device that it runs on.

A GPU that one image or one chunk keeps busy gains nothing from batches, and the first request of
a batch would wait for the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from qwink.engine.base import Chunk, Engine, KVCache, NewTokens, Traits
from qwink.model.rope import mrope_positions
from qwink.types import Grid, Patches, Prompt

SIZES = (1, 2, 4)
ROWS = (1, 2, 4, 8, 16)  # tokens of one sequence in a step
LEAST_GAIN = 0.1  # of the time for each; a batch that gains less is not worth waiting for
CHEAP = 1.5  # times as long as one token: what cheap rows may take
_SIDE = 28  # patches: 448 px, a common size of picture
_CHUNK = 256  # tokens
_ROUNDS = 2

Clock = Callable[[], float]


def measure_traits(engine: Engine, cache: KVCache, clock: Clock = time.perf_counter) -> Traits:
    """Measure an engine. Overwrites the first slots of `cache`."""
    encode = time_encoder(engine, SIZES, clock)
    sizes = tuple(size for size in SIZES if size <= cache.num_slots)
    prefill = time_prefill(engine, cache, sizes, clock)
    rows = tuple(count for count in ROWS if count <= cache.capacity)
    step = time_step(engine, cache, rows, clock)
    return Traits(best_batch(encode), best_batch(prefill), cheap_rows(step))


def best_batch(seconds: Mapping[int, float]) -> int:
    """The batch with the least time for each, given the time of all by batch size from 1 on."""
    best = 1
    for size in sorted(seconds):
        if seconds[size] / size < (1 - LEAST_GAIN) * seconds[best] / best:
            best = size
    return best


def cheap_rows(seconds: Mapping[int, float]) -> int:
    """How many tokens a step can have before it takes more than `CHEAP` times as long as with
    one, given its time by their number from 1 on.
    """
    most = 1
    for count in sorted(seconds):
        if seconds[count] > CHEAP * seconds[1]:
            break
        most = count
    return most


def time_encoder(
    engine: Engine, sizes: tuple[int, ...], clock: Clock = time.perf_counter
) -> dict[int, float]:
    """Seconds to encode pictures of noise, by their number."""
    vision, rng = engine.config.vision, np.random.default_rng(0)
    side = _SIDE // vision.merge_size * vision.merge_size
    shape = side * side, vision.in_channels * vision.patch_size**2
    noise = Patches(rng.integers(0, 256, shape, np.uint8), Grid(1, side, side), "noise")
    return {size: _best(partial(engine.encode, [noise] * size), clock) for size in sizes}


def time_prefill(
    engine: Engine, cache: KVCache, sizes: tuple[int, ...], clock: Clock = time.perf_counter
) -> dict[int, float]:
    """Seconds to run chunks of random text, by their number."""
    length = min(_CHUNK, cache.capacity)
    ids = np.random.default_rng(0).integers(0, engine.config.text.vocab_size, length)
    prompt = Prompt(ids, (), *mrope_positions(length, ()))
    chunks = [Chunk(slot, prompt, {}, 0, length) for slot in range(max(sizes))]
    return {size: _best(partial(engine.prefill, cache, chunks[:size]), clock) for size in sizes}


def time_step(
    engine: Engine, cache: KVCache, counts: tuple[int, ...], clock: Clock = time.perf_counter
) -> dict[int, float]:
    """Seconds for a step of one sequence, by its number of new tokens; all logits are wanted."""
    most = max(counts)
    start = min(_CHUNK, cache.capacity - most)
    ids = np.random.default_rng(0).integers(0, engine.config.text.vocab_size, most).tolist()
    runs = {count: NewTokens(0, tuple(ids[:count]), start, start, count) for count in counts}
    return {count: _best(partial(engine.step, cache, [runs[count]]), clock) for count in counts}


def _best(work: Callable[[], object], clock: Clock) -> float:
    """The shortest time of a few rounds, after a first one that is not counted."""
    times = []
    for _ in range(1 + _ROUNDS):
        start = clock()
        work()
        times.append(clock() - start)
    return min(times[1:])
