"""The cost card: work of each stage, its floor on this machine, and measured time over floor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from qwink.export.recipe import Recipe
from qwink.lab.cost.ceilings import Ceilings
from qwink.lab.cost.work import Work, decode_work, encode_work, kv_bytes_per_token, prefill_work
from qwink.model.config import ModelConfig
from qwink.native import Layout


@dataclass(frozen=True, slots=True)
class Floor:
    """A stage's work, and its least time at this machine's ceilings.

    Computing and reading overlap, so the floor is the longer of the two. `measured_ms` and
    `times_floor` are None until there is a measurement.
    """

    gflop: float
    float_gflop: float  # part of gflop, in fp32: attention, patch embedding
    read_bytes: int
    floor_ms: float
    bound_by: Literal["compute", "memory"]
    measured_ms: float | None = None
    times_floor: float | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """One request: an image encoded, its prompt prefilled, a token generated after it."""

    image_tokens: int
    prompt_tokens: int
    kv_bytes_per_token: int
    encode: Floor
    prefill: Floor
    token: Floor


@dataclass(frozen=True, slots=True)
class Measured:
    """Milliseconds per stage; `token_ms` None where nothing was generated after the first."""

    encode_ms: float
    prefill_ms: float
    token_ms: float | None


def cost_card(
    config: ModelConfig,
    recipe: Recipe,
    layout: Layout,
    image_tokens: int,
    prompt_tokens: int,
    ceilings: Ceilings,
    measured: Measured | None = None,
) -> Card:
    """The card of a request with `prompt_tokens`, of which `image_tokens` are of one image.

    `recipe` and `layout` determine how weights, keys and values are stored.
    """
    took = measured or Measured(0, 0, None)
    encode = encode_work(config, recipe, layout, image_tokens * config.vision.merge_size**2)
    prefill = prefill_work(config, recipe, layout, prompt_tokens)
    token = decode_work(config, recipe, layout, prompt_tokens)
    return Card(
        image_tokens,
        prompt_tokens,
        kv_bytes_per_token(config, layout),
        floor(encode, ceilings, took.encode_ms or None),
        floor(prefill, ceilings, took.prefill_ms or None),
        floor(token, ceilings, took.token_ms),
    )


def floor(work: Work, ceilings: Ceilings, measured_ms: float | None = None) -> Floor:
    """The floor of `work`, beside a measurement if there is one."""
    compute_s = work.int8_flops / 1e9 / ceilings.int8_gflop_per_s
    compute_s += work.float_flops / 1e9 / ceilings.float_gflop_per_s
    read_s = work.read_bytes / 1e9 / ceilings.read_gb_per_s
    least_ms = max(compute_s, read_s) * 1e3
    return Floor(
        gflop=round(work.flops / 1e9, 3),
        float_gflop=round(work.float_flops / 1e9, 3),
        read_bytes=work.read_bytes,
        floor_ms=round(least_ms, 3),
        bound_by="compute" if compute_s >= read_s else "memory",
        measured_ms=measured_ms,
        times_floor=None if measured_ms is None else round(measured_ms / least_ms, 2),
    )
