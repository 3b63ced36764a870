"""The torch engine compared with Transformers' `generate`, in one run on one device.

    python -m benchmarks.make_checkpoint standin      # full-size random weights
    python -m qwink.lab.torch_engine standin --device cuda

First token of one picture and a question, then milliseconds for a decode step at several batch
sizes, and the times of batches of images and prompts. Both have the same weights, number format,
pixels and prompt. Writes JSON to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import Qwen3VLForConditionalGeneration

from qwink.engine.base import Chunk, NewTokens, image_key
from qwink.engine.torch.engine import TorchEngine
from qwink.engine.torch.measure import best_batch, time_encoder, time_prefill
from qwink.lab.facts import PACKAGES
from qwink.lab.record import RESULTS, record, write
from qwink.lab.statistics import summarise
from qwink.model.rope import mrope_positions
from qwink.types import EncodedImage, Grid, ImageSpan, Patches, Prompt


class Work:
    """A picture of noise, some random text after it, and the same for Transformers."""

    def __init__(self, engine: TorchEngine, side: int, num_text: int) -> None:
        config, rng = engine.config, np.random.default_rng(0)
        vision = config.vision
        grid = Grid(1, side // vision.patch_size, side // vision.patch_size)
        shape = grid.num_patches, vision.in_channels * vision.patch_size**2
        self.patches = Patches(rng.integers(0, 256, shape, np.uint8), grid, "noise")
        length = grid.num_patches // vision.merge_size**2
        span = ImageSpan(1, length, grid, image_key("noise", engine.artifact_id))
        special = {config.image_token_id, config.vision_start_token_id, config.vision_end_token_id}
        text = [int(i) for i in rng.integers(10, min(special), num_text)]
        ids = [text[0], *[config.image_token_id] * length, *text[1:]]
        self.prompt = Prompt(np.array(ids), (span,), *mrope_positions(len(ids), (span,)))
        self.image_token_id = config.image_token_id

    def for_transformers(self, batch: int, device: torch.device) -> dict[str, Any]:
        ids = torch.from_numpy(self.prompt.ids)[None]
        grid = self.patches.grid
        pixels = (torch.from_numpy(self.patches.pixels).float() / 255 - 0.5) / 0.5
        # Channel by channel, each frame twice: the layout of Transformers' image processor.
        frames = pixels.view(len(pixels), 3, 1, -1).expand(-1, -1, 2, -1).reshape(len(pixels), -1)
        inputs = {
            "input_ids": ids.expand(batch, -1),
            "attention_mask": torch.ones_like(ids).expand(batch, -1),
            "mm_token_type_ids": (ids == self.image_token_id).int().expand(batch, -1),
            "pixel_values": frames.repeat(batch, 1),
            "image_grid_thw": torch.tensor([[grid.t, grid.h, grid.w]] * batch),
        }
        return {name: value.to(device) for name, value in inputs.items()}


def median_ms(work: Callable[[], object], rounds: int) -> float:
    """The median of `rounds` runs, after one that warms up."""
    times = []
    for _ in range(1 + rounds):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1e3)
    return summarise(times[1:]).median


def measure_qwink(
    engine: TorchEngine, work: Work, batches: list[int], tokens: int, rounds: int
) -> tuple[dict[str, Any], int]:
    """Figures, and the first token."""
    prompt, length = work.prompt, len(work.prompt)
    cache = engine.open_cache(max(batches), length + tokens + 1)
    images: dict[str, EncodedImage] = {}

    def encode() -> None:
        image = engine.encode([work.patches])[0]
        images[image.key] = image

    def prefill(slot: int = 0) -> int:
        hidden = engine.prefill(cache, [Chunk(slot, prompt, images, 0, length)])
        return int(engine.logits(hidden)[0].argmax())

    figures: dict[str, Any] = {
        "encode_ms": median_ms(encode, rounds),
        "prefill_ms": median_ms(prefill, rounds),
        "decode_step_ms": {},
    }

    def first_token() -> int:
        encode()
        return prefill()

    figures["first_token_ms"] = median_ms(first_token, rounds)
    first = first_token()
    for batch in batches:
        for slot in range(batch):
            prefill(slot)
        times = []
        ids = [first] * batch
        for step in range(tokens):
            position = prompt.next_position + step
            runs = [NewTokens(slot, (i,), length + step, position) for slot, i in enumerate(ids)]
            start = time.perf_counter()
            logits = engine.step(cache, runs)
            ids = [int(token) for token in logits.argmax(axis=1)]
            times.append((time.perf_counter() - start) * 1e3)
        figures["decode_step_ms"][str(batch)] = summarise(times).median
    sizes = tuple(size for size in (1, 2, 4) if size <= cache.num_slots)
    encode_s, prefill_s = time_encoder(engine, (1, 2, 4)), time_prefill(engine, cache, sizes)
    figures["batches"] = {
        "encode_ms": {str(size): seconds * 1e3 for size, seconds in encode_s.items()},
        "prefill_ms": {str(size): seconds * 1e3 for size, seconds in prefill_s.items()},
        "best": {"encode": best_batch(encode_s), "prefill": best_batch(prefill_s)},
    }
    return figures, first


def measure_transformers(
    folder: Path, engine: TorchEngine, work: Work, batches: list[int], tokens: int, rounds: int
) -> tuple[dict[str, Any], int]:
    """Figures of plain `generate`, and the first token."""
    model: Any = Qwen3VLForConditionalGeneration.from_pretrained(
        folder, dtype=engine.dtype, attn_implementation="sdpa"
    )
    model.to(engine.device).eval()
    cuda = engine.device.type == "cuda"

    def generate(batch: int, count: int) -> Any:
        found = model.generate(
            **work.for_transformers(batch, engine.device),
            max_new_tokens=count,
            min_new_tokens=count,
            do_sample=False,
        )
        if cuda:
            torch.cuda.synchronize(engine.device)
        return found

    figures: dict[str, Any] = {
        "first_token_ms": median_ms(lambda: generate(1, 1), rounds),
        "decode_step_ms": {},
    }
    for batch in batches:
        short = median_ms(partial(generate, batch, 1), rounds)
        long = median_ms(partial(generate, batch, 1 + tokens), rounds)
        figures["decode_step_ms"][str(batch)] = (long - short) / tokens
    return figures, int(generate(1, 1)[0, -1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--quantize")
    parser.add_argument("--batches", default="1,8,32")
    parser.add_argument("--tokens", type=int, default=64, help="decode steps timed")
    parser.add_argument("--side", type=int, default=448, help="of the picture, in pixels")
    parser.add_argument("--text", type=int, default=34, help="tokens of text beside the picture")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS / "torch.json")
    args = parser.parse_args()
    batches = [int(size) for size in args.batches.split(",")]
    engine = TorchEngine(args.checkpoint, args.device, args.dtype, quantize=args.quantize)
    work = Work(engine, args.side, args.text)
    steps = args.tokens, args.rounds
    ours, first = measure_qwink(engine, work, batches, *steps)
    theirs, their_first = measure_transformers(args.checkpoint, engine, work, batches, *steps)
    accelerator = None if engine.device.type == "cpu" else engine.about["device"]
    result = {
        "engine": engine.about,
        "checkpoint": args.checkpoint.name,
        "prompt_tokens": len(work.prompt),
        "decode_steps": args.tokens,
        "qwink": ours,
        "transformers": theirs,
        "same_first_token": first == their_first,
        "speedup": {
            "first_token": theirs["first_token_ms"] / ours["first_token_ms"],
            "decode_step": {
                size: theirs["decode_step_ms"][size] / ours["decode_step_ms"][size]
                for size in ours["decode_step_ms"]
            },
        },
    }
    found = record("torch", _rounded(result), (*PACKAGES, "torch", "transformers"), accelerator)
    write(args.out, found.document())
    print(json.dumps(_rounded(result["speedup"])), file=sys.stderr)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main()
