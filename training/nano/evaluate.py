"""Greedy answers on held-out pictures, scored per task and per font size, as JSON."""

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image
from safetensors.torch import load_file

from . import data, varied
from . import tokenizer as tk
from .export import load
from .model import Nano, NanoConfig
from .pictures import SIZES, sample
from .prompt import conversation

BUCKETS = ((0, 16), (16, 20), (20, 28), (28, 36), (36, 64))
SEED = 20_000_000  # larger than all seeds of training
LONGEST = 64


class Question(NamedTuple):
    """One held-out sample. font_px is 0 for pictures without text."""

    image: Image.Image
    question: str
    answer: str
    task: str
    font_px: float


def unseen_lines(count: int, seed: int = SEED) -> Iterator[Question]:
    """Short lines in families of typefaces that no training picture has."""
    rng = random.Random(seed)
    while count:
        made = varied.line_picture(64, 256, rng, 0.0, True, unseen=True)
        question, answer = made.turns[0]
        if made.task == "read":
            count -= 1
            yield Question(made.image, question, answer, made.task, made.font_px)


def held_out(count: int, seed: int = SEED) -> Iterator[Question]:
    """Samples whose strings are not in training pictures; 16 in a row have the same size."""
    rng = random.Random(seed)
    sizes, weights = list(SIZES), list(SIZES.values())
    size = sizes[0]
    for index in range(count):
        if index % 16 == 0:
            size = rng.choices(sizes, weights)[0]
        made = sample(size, rng, locate=0.15, test=True)
        question, answer = made.turns[0]
        yield Question(made.image, question, answer, made.task, made.font_px)


@torch.no_grad()
def answers(nano: Nano, asked: Sequence[Question]) -> list[str]:
    """Greedy answers to questions whose pictures have the same size."""
    width, height = asked[0].image.size
    grid = (height // 16, width // 16)
    visual = grid[0] * grid[1] // 4
    patches = torch.stack([torch.from_numpy(data.patchify(q.image)) for q in asked])
    features = nano.encode_images(patches, grid)
    prompts = [conversation([(q.question, "")], visual)[0][:-1] for q in asked]
    generated: list[list[int]] = [[] for _ in asked]
    unfinished = list(range(len(asked)))
    while unfinished and len(generated[unfinished[0]]) < LONGEST:
        rows = [prompts[i] + generated[i] for i in unfinished]
        ids = torch.full((len(rows), max(map(len, rows))), tk.END)
        slots = torch.full_like(ids, -1)
        positions = torch.zeros(3, *ids.shape, dtype=torch.long)
        for at, row in enumerate(rows):
            ids[at, : len(row)] = torch.tensor(row)
            positions[:, at, : len(row)], slots[at, : len(row)] = data.place(row, grid)
        selected = type(features)(
            features.tokens[unfinished], tuple(x[unfinished] for x in features.deepstack)
        )
        hidden = nano.hidden_states(ids, positions, slots, selected)
        last = hidden[torch.arange(len(rows)), torch.tensor([len(row) - 1 for row in rows])]
        for i, token in zip(unfinished, nano.logits(last).argmax(-1).tolist(), strict=True):
            generated[i].append(token)
        unfinished = [i for i in unfinished if generated[i][-1] not in (tk.STOP, tk.END)]
    return [tk.decode(ids) for ids in generated]


def distance(a: str, b: str) -> int:
    """The edit distance of two strings."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a):
        above, row[0] = row[0], i + 1
        for j, y in enumerate(b):
            above, row[j + 1] = row[j + 1], min(above + (x != y), row[j] + 1, row[j + 1] + 1)
    return row[-1]


def score(asked: Sequence[Question], got: Sequence[str]) -> dict[str, dict[str, float]]:
    """Count, exact answers and correct characters, per task and per font size of lines."""
    rows: defaultdict[str, list[tuple[bool, int, int]]] = defaultdict(list)
    for q, answer in zip(asked, got, strict=True):
        row = (answer == q.answer, distance(answer, q.answer), len(q.answer))
        rows[q.task].append(row)
        for low, high in BUCKETS:
            if q.task == "read" and low <= q.font_px < high:
                rows[f"read {low}-{high} px"].append(row)
    return {
        name: {
            "count": len(found),
            "exact": round(sum(r[0] for r in found) / len(found), 4),
            "characters": round(1 - sum(r[1] for r in found) / sum(r[2] for r in found), 4),
        }
        for name, found in sorted(rows.items())
    }


def restore(path: Path) -> Nano:
    """The model from a training checkpoint (last.pt) or an exported folder."""
    if path.is_file():
        return load(path)
    nano = Nano(NanoConfig())
    weights = load_file(path / "model.safetensors")
    nano.load_state_dict({name: weight.float() for name, weight in weights.items()})
    return nano.eval()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="last.pt or an exported folder")
    parser.add_argument("--count", type=int, default=1600)
    parser.add_argument("--show", type=int, default=0, help="print this many wrong answers")
    args = parser.parse_args()
    nano = restore(args.model)
    asked = list(held_out(args.count))
    got: list[str] = []
    for start in range(0, len(asked), 16):
        got += answers(nano, asked[start : start + 16])
    print(json.dumps(score(asked, got), indent=1))
    wrong = [(q, a) for q, a in zip(asked, got, strict=True) if a != q.answer]
    for q, answer in wrong[: args.show]:
        print(json.dumps([q.task, q.question, q.answer, answer, round(q.font_px, 1)]))


if __name__ == "__main__":
    main()
