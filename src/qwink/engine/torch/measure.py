"""What an engine gains from taking several at once, measured on its device.

A GPU that one image or one chunk keeps busy gains nothing from batches, and the first request
would wait for the others.
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
STEPS = (1, 2, 4, 8, 16)
LEAST_GAIN = 0.1  # of the time for each; below that, waiting for others is not worth it
_SIDE = 28  # patches: 448 px, an everyday picture
_CHUNK = 256  # tokens
_ROUNDS = 2

Clock = Callable[[], float]


def measure_traits(engine: Engine, cache: KVCache, clock: Clock = time.perf_counter) -> Traits:
    """Batches that take the least time for each. Overwrites the first slots of `cache`."""
    encode = time_encoder(engine, SIZES, clock)
    sizes = tuple(size for size in SIZES if size <= cache.num_slots)
    prefill = time_prefill(engine, cache, sizes, clock)
    return Traits(
        best_batch(encode), best_batch(prefill), cheap_rows(time_steps(engine, cache, clock))
    )


def cheap_rows(seconds: Mapping[int, float]) -> int:
    """The most tokens of a step that cost at most half more than one."""
    return max(size for size in seconds if seconds[size] <= 1.5 * seconds[1])


def best_batch(seconds: Mapping[int, float]) -> int:
    """The batch with the least time for each, given the time of all by batch size from 1 on."""
    best = 1
    for size in sorted(seconds):
        if seconds[size] / size < (1 - LEAST_GAIN) * seconds[best] / best:
            best = size
    return best


def time_encoder(
    engine: Engine, sizes: tuple[int, ...], clock: Clock = time.perf_counter
) -> dict[int, float]:
    """Seconds to encode so many pictures of noise."""
    vision, rng = engine.config.vision, np.random.default_rng(0)
    side = _SIDE // vision.merge_size * vision.merge_size
    shape = side * side, vision.in_channels * vision.patch_size**2
    noise = Patches(rng.integers(0, 256, shape, np.uint8), Grid(1, side, side), "noise")
    return {size: _best(partial(engine.encode, [noise] * size), clock) for size in sizes}


def time_prefill(
    engine: Engine, cache: KVCache, sizes: tuple[int, ...], clock: Clock = time.perf_counter
) -> dict[int, float]:
    """Seconds to run a chunk of so many prompts of random text."""
    length = min(_CHUNK, cache.capacity)
    ids = np.random.default_rng(0).integers(0, engine.config.text.vocab_size, length)
    prompt = Prompt(ids, (), *mrope_positions(length, ()))
    chunks = [Chunk(slot, prompt, {}, 0, length) for slot in range(max(sizes))]
    return {
        size: _best(partial(engine.prefill, cache, chunks[:size]), clock) for size in sizes
    }


def time_steps(
    engine: Engine, cache: KVCache, clock: Clock = time.perf_counter
) -> dict[int, float]:
    """Seconds of a step of so many tokens of one sequence."""
    return {
        size: _best(partial(engine.step, cache, [NewTokens(0, (0,) * size, 0, 0, size)]), clock)
        for size in STEPS
        if size <= cache.capacity
    }


def _best(work: Callable[[], object], clock: Clock) -> float:
    """The shortest of a few rounds, after one that warms up."""
    times = []
    for _ in range(1 + _ROUNDS):
        start = clock()
        work()
        times.append(clock() - start)
    return min(times[1:])
