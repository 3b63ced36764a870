"""Steps of answers as CUDA graphs: recorded once for each shape, then launched as one.

A step of a small model is a few hundred kernels of some microseconds each, and launching them
one by one takes longer than running them. A graph needs fixed shapes and addresses. So batches,
tokens for each sequence and the attended length are padded to one of a few sizes, and inputs are
copied to where the graph reads them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qwink.engine.base import NewTokens
from qwink.engine.torch.cache import TorchCache, aligned, neighbours
from qwink.engine.torch.transfer import to_device

Ints = NDArray[np.int64]
# (inputs as of `step_inputs`, rows of each slot to read, the slots as a slice if they are
# neighbours) → hidden states [B, S, D].
Step = Callable[[Tensor, int, slice | None], Tensor]
# Takes a computation, runs it, and returns a function that repeats it and returns its result.
Record = Callable[[Callable[[], Tensor]], Callable[[], Tensor]]

logger = logging.getLogger(__name__)

SHORTEST = 256  # tokens; attended lengths are this, twice this, and so on
MOST_TOKENS = 16  # of one sequence; steps with more are not recorded
MOST_RECORDINGS = 64  # kept at once: each holds memory of the driver for its kernels


def sizes(smallest: int, largest: int) -> tuple[int, ...]:
    """`smallest`, twice that, and so on, and `largest` itself."""
    found = []
    size = smallest
    while size < largest:
        found.append(size)
        size *= 2
    return (*found, largest)


def at_least(wanted: int, of: Sequence[int]) -> int:
    """The smallest size that holds `wanted`."""
    return next(size for size in of if size >= wanted)


def step_inputs(runs: Sequence[NewTokens], scratch: int) -> Ints:
    """Slots, ids, places and positions [4, B, S] of runs; the shorter runs are padded at the end.

    Padding is token 0 in the scratch row of the run's slot.
    """
    inputs = np.zeros((4, len(runs), max(len(run.ids) for run in runs)), np.int64)
    inputs[2] = scratch
    for row, run in enumerate(runs):
        count = len(run.ids)
        inputs[0, row] = run.slot
        inputs[1, row, :count] = run.ids
        inputs[2, row, :count] = np.arange(run.length, run.length + count)
        inputs[3, row, :count] = np.arange(run.position, run.position + count)
    return inputs


@dataclass(frozen=True, slots=True, eq=False)
class _Recording:
    inputs: Tensor  # [4, B, S], where the graph reads them
    repeat: Callable[[], Tensor]


class Steps:
    """Steps over the slots of one cache. `record` is a `Graphs` on a GPU."""

    def __init__(self, cache: TorchCache, step: Step, record: Record) -> None:
        self.cache, self._step, self._record = cache, step, record
        longest = aligned(cache.capacity)
        self._batches = sizes(1, cache.num_slots)
        self._counts = sizes(1, MOST_TOKENS)
        self._lengths = sizes(min(SHORTEST, longest), longest)
        self._recordings: dict[tuple[int, int, int, bool], _Recording] = {}

    def __len__(self) -> int:
        return len(self._recordings)

    def run(self, inputs: Ints, total: int) -> Tensor:
        """Run the inputs of `step_inputs`, reading at least `total` rows of each slot.

        Returns hidden states [B, S, D], valid until the next run.
        """
        _, num_rows, count = inputs.shape
        slots = inputs[0, :, 0].tolist()
        if count > MOST_TOKENS:
            given = to_device(inputs, self.cache.device)
            return self._step(given, aligned(total), neighbours(slots))
        batch, length = at_least(num_rows, self._batches), at_least(total, self._lengths)
        window = slice(0, batch) if slots == list(range(num_rows)) else None
        padded = np.zeros((4, batch, at_least(count, self._counts)), np.int64)
        # Padding writes to scratch rows, which are never read, so that several writers of one row
        # do no harm. In a window each row of the batch has the slot of its number. Otherwise slot
        # 0 serves: it exists in every cache.
        padded[0] = np.arange(batch)[:, None] if window else 0
        padded[2] = self.cache.scratch
        padded[:, :num_rows, :count] = inputs
        given = to_device(padded, self.cache.device)
        key = (*padded.shape[1:], length, window is not None)
        recording = self._recordings.get(key)
        if recording is None:
            while len(self._recordings) >= MOST_RECORDINGS:
                del self._recordings[next(iter(self._recordings))]
            compute = partial(self._step, given, length, window)
            recording = self._recordings[key] = _Recording(given, self._recorded(compute))
        else:
            recording.inputs.copy_(given)
        return recording.repeat()[:num_rows, :count]

    def _recorded(self, compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Record a step, or return it as it is. `compute` must have a real step's inputs, because
        recording runs it.
        """
        try:
            return self._record(compute)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:  # this card or PyTorch cannot record it: slower, but right
            logger.exception("a step could not be recorded; its kernels are launched one by one")
            return compute


class Graphs:
    """Records computations as CUDA graphs that share their working memory."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
        # The first run chooses kernels and allocates workspaces, which a graph cannot record.
        stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            compute()
        torch.cuda.current_stream(self._device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            output = compute()

        def repeat() -> Tensor:
            graph.replay()
            return output

        return repeat
