"""Decode steps as CUDA graphs: recorded once for each shape, then launched as one.

A step of a small model is a few hundred kernels of some microseconds each, and launching them
one by one takes longer than they do. A graph wants fixed shapes and addresses, so batches are
padded to one of a few sizes, the attended length too, and inputs are copied to where the graph
expects them.
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

from qwink.engine.torch.cache import TorchCache, aligned
from qwink.engine.torch.transfer import to_device

Ints = NDArray[np.int64]
# ids, places, positions and slots [4, B], how many tokens of each slot to look at → logits [B, vocab].
Step = Callable[[Tensor, int], Tensor]
# Takes a computation, runs it, and returns what repeats it and gives its result.
Record = Callable[[Callable[[], Tensor]], Callable[[], Tensor]]

logger = logging.getLogger(__name__)

SHORTEST = 256  # tokens; attended lengths are this, twice this, and so on


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


@dataclass(frozen=True, slots=True, eq=False)
class _Recording:
    inputs: Tensor  # [4, B], where the graph reads them
    repeat: Callable[[], Tensor]


class Steps:
    """Steps of one token for each sequence. `record` is a `Graphs` on a GPU."""

    def __init__(self, cache: TorchCache, step: Step, record: Record) -> None:
        self.cache, self._step, self._record = cache, step, record
        longest = aligned(cache.capacity)
        self._batches = sizes(1, cache.num_slots)
        self._lengths = sizes(min(SHORTEST, longest), longest)
        self._recordings: dict[tuple[int, int], _Recording] = {}

    def __len__(self) -> int:
        return len(self._recordings)

    def run(self, inputs: Ints) -> Tensor:
        """inputs [4, B], as of `Step` → logits [B, vocab], valid until the next run.

        Padding runs token 0 into the scratch row of slot 0, which nothing reads.
        """
        num_rows = inputs.shape[1]
        batch = at_least(num_rows, self._batches)
        length = at_least(int(inputs[1].max()) + 1, self._lengths)
        padded = np.zeros((4, batch), np.int64)
        padded[1] = self.cache.scratch
        padded[:, :num_rows] = inputs
        given = to_device(padded, self.cache.device)
        recording = self._recordings.get((batch, length))
        if recording is None:
            recording = _Recording(given, self._recorded(partial(self._step, given, length)))
            self._recordings[batch, length] = recording
        else:
            recording.inputs.copy_(given)
        return recording.repeat()[:num_rows]

    def _recorded(self, compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Recording runs the step, too: `compute` must have the inputs of a real one."""
        try:
            return self._record(compute)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:  # a card or a PyTorch that cannot record this: slower, but right
            logger.exception("a decode step could not be recorded; it is launched part by part")
            return compute


class Graphs:
    """Records computations as CUDA graphs that share their working memory."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
        # Kernels are chosen and their workspaces made at the first run, which no graph may hold.
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
