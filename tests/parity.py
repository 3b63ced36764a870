"""Compares the logits of an engine with those of Transformers on random prompts.

It uses only the interface `qwink.engine.base.Engine`, so it works with every engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from qwink.engine.base import Chunk, Engine, NewTokens, image_key
from qwink.model.config import ModelConfig
from qwink.model.rope import mrope_positions
from qwink.types import EncodedImage, Grid, ImageSpan, Patches, Prompt

Float = NDArray[np.float32]

torch.set_num_threads(1)  # the reference models are too small for more threads

# Both sides compute in fp32 but sum in different order. For logits with a standard deviation of
# about 4, the differences are about 2e-5; errors in the arithmetic cause 1e-2 or more.
TOLERANCE = 1e-3


@dataclass(frozen=True, eq=False)
class Case:
    """A prompt of random text and noise images, and the images' patches."""

    prompt: Prompt
    patches: tuple[Patches, ...]


def make_case(engine: Engine, parts: Sequence[int | Grid], seed: int = 0) -> Case:
    """A case from `parts` in order: a number of random text tokens, or an image of that grid.

    Images must have text between them, as in chat templates.
    """
    rng = np.random.default_rng(seed)
    config = engine.config
    special = max(
        config.image_token_id, config.vision_start_token_id, config.vision_end_token_id, 6
    )
    ids: list[int] = []
    spans: list[ImageSpan] = []
    images: list[Patches] = []
    for index, part in enumerate(parts):
        if isinstance(part, Grid):
            patches = noise(config, part, f"noise-{seed}-{index}", rng)
            length = part.num_patches // config.vision.merge_size**2
            key = image_key(patches.key, engine.artifact_id)
            spans.append(ImageSpan(len(ids), length, part, key))
            ids += [config.image_token_id] * length
            images.append(patches)
        else:
            ids += rng.integers(special + 1, config.text.vocab_size, part).tolist()
    return Case(make_prompt(ids, spans), tuple(images))


def make_prompt(ids: Sequence[int], spans: Sequence[ImageSpan]) -> Prompt:
    positions, following = mrope_positions(len(ids), spans)
    return Prompt(np.array(ids, np.int64), tuple(spans), positions, following)


def noise(config: ModelConfig, grid: Grid, key: str, rng: np.random.Generator) -> Patches:
    """The patches of an image of random pixels."""
    shape = grid.num_patches, config.vision.in_channels * config.vision.patch_size**2
    return Patches(rng.integers(0, 256, shape, np.uint8), grid, key)


def reference_pixels(patches: Patches) -> torch.Tensor:
    """The patches as Transformers' image processor gives them: normalised, each frame twice."""
    pixels = (patches.pixels.astype(np.float32) / 255 - 0.5) / 0.5
    channels = pixels.reshape(len(pixels), 3, 1, -1)
    return torch.from_numpy(channels.repeat(2, axis=2).reshape(len(pixels), -1))


def reference_inputs(case: Case, image_token_id: int) -> dict[str, torch.Tensor]:
    """Keyword arguments for the reference model."""
    ids = torch.from_numpy(case.prompt.ids)[None]
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "mm_token_type_ids": (ids == image_token_id).int(),
    }
    if case.patches:
        grids = [(p.grid.t, p.grid.h, p.grid.w) for p in case.patches]
        inputs["pixel_values"] = torch.cat([reference_pixels(p) for p in case.patches])
        inputs["image_grid_thw"] = torch.tensor(grids)
    return inputs


def reference_logits(reference: Any, case: Case) -> Float:
    """The logits of all tokens, [S, vocab]."""
    inputs = reference_inputs(case, reference.config.image_token_id)
    with torch.no_grad():
        logits: Float = reference(**inputs).logits[0].numpy()
    return logits


def reference_features(reference: Any, patches: Patches) -> tuple[Float, Float]:
    """The vision encoder's output for one image: embeds [V, D], deepstack [taps, V, D]."""
    grid = torch.tensor([[patches.grid.t, patches.grid.h, patches.grid.w]])
    with torch.no_grad():
        found = reference.model.get_image_features(reference_pixels(patches), grid)
    taps = [tap[0].numpy() for tap in found.deepstack_features]
    return found.pooler_output[0].numpy(), np.stack(taps)


def encode_all(engine: Engine, case: Case) -> dict[str, EncodedImage]:
    encoded = engine.encode(case.patches)
    return {image.key: image for image in encoded}


def engine_logits(
    engine: Engine,
    case: Case,
    cuts: Iterable[int] = (),
    num_decoded: int = 0,
    cache: Any = None,
    slot: int = 0,
) -> dict[int, Float]:
    """Logits by token: prefill cut into chunks before each of `cuts`, then single steps.

    Gives those of each chunk's last token and of the last `num_decoded` tokens.
    """
    prompt, images = case.prompt, encode_all(engine, case)
    cache = engine.open_cache(1, len(prompt)) if cache is None else cache
    num_prefilled = len(prompt) - num_decoded
    found: dict[int, Float] = {}
    start = 0
    for stop in sorted({*(cut for cut in cuts if 0 < cut < num_prefilled), num_prefilled}):
        hidden = engine.prefill(cache, [Chunk(slot, prompt, images, start, stop)])
        found[stop - 1] = engine.logits(hidden)[0]
        start = stop
    for token in range(num_prefilled, len(prompt)):
        found[token] = decode_token(engine, cache, slot, prompt, token)
    return found


def decode_token(engine: Engine, cache: Any, slot: int, prompt: Prompt, token: int) -> Float:
    """One step on a text token of the prompt, those before it being in the cache."""
    logits: Float = engine.step(cache, [new_tokens(slot, prompt, token)])[0]
    return logits


def new_tokens(
    slot: int, prompt: Prompt, start: int, count: int = 1, num_logits: int | None = None
) -> NewTokens:
    """Text tokens of a prompt as an answer's, those before them being in the cache."""
    ids = tuple(prompt.ids[start : start + count].tolist())
    position = int(prompt.positions[0, start])
    return NewTokens(slot, ids, start, position, count if num_logits is None else num_logits)


def assert_parity(found: dict[int, Float], expected: Float) -> None:
    """Assert that all logits are within TOLERANCE of the reference's [S, vocab]."""
    for token, logits in found.items():
        error = float(np.abs(logits - expected[token]).max())
        assert error <= TOLERANCE, f"token {token} is off by {error:.2g}"


def snr(actual: NDArray[Any], expected: NDArray[Any]) -> float:
    """Signal-to-noise ratio in dB."""
    noise = np.square(np.asarray(actual, np.float64) - expected).mean()
    signal = np.square(np.asarray(expected, np.float64)).mean()
    return float(10 * np.log10(signal / max(noise, 1e-300)))


def agreement(actual: Float, expected: Float) -> float:
    """Share of rows whose most likely token is the same."""
    return float((actual.argmax(-1) == expected.argmax(-1)).mean())
