"""Batches of synthetic pictures and conversations about them."""

import random
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from . import questions as qs
from . import tokenizer as tk
from . import varied
from .pictures import SIZES, SMALL, Sample, sample
from .prompt import conversation
from .strips import strip_samples

SLOTS = 6
STRIPS_SHARE = 0.75  # of the batches of varied training
SYMBOLS = ("", *qs.CHARACTERS, *qs.SHAPES, *qs.COLOURS)
SYMBOL = {name: index for index, name in enumerate(SYMBOLS)}


class Batch(NamedTuple):
    """Tensors of one training step; all pictures share one grid.

    patches (B, N, 768) uint8, ids (B, L), learnt (B, L), positions (3, B, L),
    slots (B, L), cells (B, V, SLOTS).
    """

    patches: Tensor
    ids: Tensor
    learnt: Tensor
    positions: Tensor
    slots: Tensor
    cells: Tensor
    grid: tuple[int, int]

    def to(self, device: str) -> "Batch":
        """A copy of the batch on a device."""
        return self._replace(
            patches=self.patches.to(device),
            ids=self.ids.to(device),
            learnt=self.learnt.to(device),
            positions=self.positions.to(device),
            slots=self.slots.to(device),
            cells=self.cells.to(device),
        )


def patchify(image: Image.Image) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Patches (N, 768) of a picture in merge order, each channel by row by column."""
    pixels = np.asarray(image.convert("RGB"), np.uint8)
    h, w = pixels.shape[0] // 32, pixels.shape[1] // 32
    blocks = pixels.reshape(h, 2, 16, w, 2, 16, 3).transpose(0, 3, 1, 4, 6, 2, 5)
    return np.ascontiguousarray(blocks).reshape(h * w * 4, 768)


def place(ids: list[int], grid: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """M-RoPE positions (3, L) and visual slots (L,) of a prompt with at most one picture."""
    rows, columns = grid[0] // 2, grid[1] // 2
    total = rows * columns
    first = ids.index(tk.IMAGE) if tk.IMAGE in ids else len(ids)
    positions = torch.arange(len(ids)).repeat(3, 1)
    slots = torch.full((len(ids),), -1)
    if first < len(ids):
        index = torch.arange(total)
        slots[first : first + total] = index
        positions[0, first : first + total] = first
        positions[1, first : first + total] = first + index // columns
        positions[2, first : first + total] = first + index % columns
        positions[:, first + total :] += max(rows, columns) - total
    return positions, slots


def cells(marks: list[tuple[float, float, str]], grid: tuple[int, int]) -> Tensor:
    """The symbols (V, SLOTS) whose centre is in each 32x32 cell, in reading order."""
    rows, columns = grid[0] // 2, grid[1] // 2
    out = torch.zeros(rows * columns, SLOTS, dtype=torch.long)
    filled = [0] * (rows * columns)
    for x, y, symbol in marks:
        row, column = min(rows - 1, max(0, int(y // 32))), min(columns - 1, max(0, int(x // 32)))
        cell = row * columns + column
        if symbol in SYMBOL and filled[cell] < SLOTS:
            out[cell, filled[cell]] = SYMBOL[symbol]
            filled[cell] += 1
    return out


def collate(samples: list[Sample], rng: random.Random, varied: bool) -> Batch:
    """A batch of samples whose pictures have the same size.

    A varied batch has second turns and system messages, so its sequences are longer.
    """
    width, height = samples[0].image.size
    grid = (height // 16, width // 16)
    visual = grid[0] * grid[1] // 4
    rows = []
    for s in samples:
        turns = s.turns if varied and rng.random() < 0.7 else s.turns[:1]
        system = rng.choice(qs.SYSTEMS) if varied and rng.random() < 0.4 else ""
        rows.append(conversation(turns, visual, system, rng.random() < 0.08))
    length = -(-max(len(ids) for ids, _ in rows) // 16) * 16
    ids = torch.full((len(rows), length), tk.END)
    learnt = torch.zeros(len(rows), length, dtype=torch.bool)
    positions = torch.zeros(3, len(rows), length, dtype=torch.long)
    slots = torch.full((len(rows), length), -1)
    for i, (line, mask) in enumerate(rows):
        ids[i, : len(line)] = torch.tensor(line)
        learnt[i, : len(line)] = torch.tensor(mask)
        positions[:, i, : len(line)], slots[i, : len(line)] = place(line, grid)
    patches = torch.from_numpy(np.stack([patchify(s.image) for s in samples]))
    marks = torch.stack([cells(s.marks, grid) for s in samples])
    return Batch(patches, ids, learnt, positions, slots, marks, grid)


def strip_batches(rng: random.Random, size: int) -> Iterator[list[Sample]]:
    """Endless lists of `size` strips of the same width."""
    waiting: defaultdict[int, list[Sample]] = defaultdict(list)
    for made in strip_samples(rng):
        same = waiting[made.image.width]
        same.append(made)
        if len(same) == size:
            yield waiting.pop(made.image.width)


class Stream(torch.utils.data.IterableDataset[Batch]):
    """Endless training batches. `progress` (0 to 1, in shared memory) sets their difficulty.

    `easy`: whether the first of them are easy, for a model that cannot read yet. `varied`: draw
    the pictures of `varied`.
    """

    def __init__(
        self, batch: int, seed: int, progress: Tensor, *, easy: bool = True, varied: bool = False
    ) -> None:
        self.batch, self.seed, self.progress = batch, seed, progress
        self.easy, self.varied = easy, varied

    def __iter__(self) -> Iterator[Batch]:
        worker = torch.utils.data.get_worker_info()
        torch.set_num_threads(1)
        rng = random.Random(f"{self.seed}-{worker.id if worker else 0}")
        draw = varied.sample if self.varied else sample
        strips = strip_batches(rng, self.batch)
        while True:
            if self.varied and rng.random() < STRIPS_SHARE:
                yield collate(next(strips), rng, False)
                continue
            done = float(self.progress) if self.easy else 1.0
            ease = max(0.0, 1 - done / 0.25)
            small = rng.random() < 1 - done / 0.1
            size = rng.choice(SMALL) if small else rng.choices(*zip(*SIZES.items()))[0]  # noqa: B905
            several = rng.random() < 0.1
            locate = 0.5 if several and done > 0.3 else 0.0
            count = max(16, round(self.batch * min(1.0, 64 * 384 / (size[0] * size[1]))))
            samples = [draw(size, rng, ease, locate) for _ in range(count)]
            yield collate(samples, rng, several)
