"""Quality of recipes on a checkpoint with random weights: signal-to-noise and agreement.

    python -m qwink.lab.verify.synthetic --exact DIR --artifact fast=DIR --artifact balanced=DIR

Two kinds of logits are compared with those of the `exact` artifact of the same checkpoint: of the
last prompt tokens (vision encoder and prefill), and of given tokens decoded one by one (decode
weights after a quantised prefill). Logits of random weights are nearly flat, so that agreement is
far below a trained model's: compare the recipes with each other, not with 100 %.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from qwink.engine.base import Chunk, NewTokens
from qwink.engine.onnx import OnnxEngine
from qwink.lab.quality import Float, compare_logits
from qwink.lab.record import RESULTS, record, write
from qwink.model.artifact import Artifact
from qwink.model.rope import mrope_positions
from qwink.types import Grid, ImageSpan, Patches, Prompt

GRID = Grid(1, 16, 20)
NUM_VISUAL = GRID.num_patches // 4
NUM_PROMPT, NUM_COMPARED, NUM_DECODED = NUM_VISUAL + 40, 24, 24


def picture() -> Patches:
    """A random colour for each patch, with noise: more like a picture than white noise is."""
    rng = np.random.default_rng(0)
    waves = rng.normal(0, 60, (GRID.num_patches, 3, 1, 1))
    noise = rng.normal(0, 25, (GRID.num_patches, 3, 16, 16))
    values = np.clip(waves + noise + 128, 0, 255).astype(np.uint8)
    return Patches(values.reshape(GRID.num_patches, -1), GRID, "picture")


def logits(folder: str, start_id: int | None) -> tuple[Float, Float]:
    """(prefill, decode) logits, [NUM_COMPARED, vocab] and [NUM_DECODED, vocab]."""
    engine = OnnxEngine(Artifact.load(folder))
    image = engine.encode([picture()])[0]
    span = ImageSpan(4, NUM_VISUAL, GRID, image.key)
    ids = np.random.default_rng(1).integers(0, 150_000, NUM_PROMPT + NUM_DECODED)
    ids = ids % engine.config.text.vocab_size
    ids[span.start : span.start + span.length] = engine.config.image_token_id
    if start_id is not None:
        ids[0] = start_id
    positions, following = mrope_positions(NUM_PROMPT, (span,))
    prompt = Prompt(ids[:NUM_PROMPT], (span,), positions, following)
    cache = engine.open_cache(1, NUM_PROMPT + NUM_DECODED)
    last = range(NUM_PROMPT - NUM_COMPARED, NUM_PROMPT)
    images = {image.key: image}
    hidden = engine.hidden_states(cache, Chunk(0, prompt, images, 0, NUM_PROMPT), last)
    decoded = [
        engine.step(cache, [NewTokens(0, (int(ids[at]),), at, following + at - NUM_PROMPT)])[0]
        for at in range(NUM_PROMPT, NUM_PROMPT + NUM_DECODED)
    ]
    return engine.logits(hidden), np.stack(decoded)


def compare(found: Float, wanted: Float) -> dict[str, float]:
    """Signal-to-noise in dB, share of equal first choices, mean KL divergence in nats."""
    quality = compare_logits(found, wanted)
    return {
        "snr_db": round(quality.snr_db, 1),
        "top1_agreement": round(quality.top1_agreement, 3),
        "kl_nats": round(quality.kl_nats, 4),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--exact", required=True, help="artifact of recipe exact")
    parser.add_argument("--artifact", action="append", default=[], metavar="NAME=DIR")
    parser.add_argument("--start-id", type=int, help="the prompt's first token")
    parser.add_argument("--out", type=Path, default=RESULTS / "quality.json")
    args = parser.parse_args(arguments)
    wanted = logits(args.exact, args.start_id)
    recipes: dict[str, Any] = {}
    for item in args.artifact:
        name, _, folder = item.partition("=")
        prefill, decode = logits(folder, args.start_id)
        recipes[name] = {
            "prefill": compare(prefill, wanted[0]),
            "decode": compare(decode, wanted[1]),
        }
        print(name, recipes[name], flush=True)
    result = {
        "checkpoint": Artifact.load(args.exact).manifest.name,
        "work": f"{NUM_PROMPT} prompt tokens, {NUM_VISUAL} visual; {NUM_DECODED} decoded",
        "recipes": recipes,
    }
    write(args.out, record("quality", result).document())


if __name__ == "__main__":
    main()
