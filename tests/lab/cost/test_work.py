"""Formulas of work, compared with published figures and with the files of an export."""

from __future__ import annotations

from pathlib import Path

import pytest

import qwink
from qwink.export.build import export
from qwink.export.recipe import RECIPES
from qwink.lab.cost.work import Work, decode_work, encode_work, kv_bytes_per_token, prefill_work
from qwink.model.config import ModelConfig, load_config
from qwink.native import LAYOUTS, NATIVE_LAYOUT, Layout

NANO = Path(qwink.__file__).parent / "assets" / "nano"
FAST, EXACT = RECIPES["fast"], RECIPES["exact"]
PLAIN: Layout = "onnxruntime"


def test_encoder_of_the_2b_at_448(published_2b: ModelConfig) -> None:
    # Counted before the frames were folded: 576 GFLOP for 784 patches, 60 of them attention.
    work = encode_work(published_2b, FAST, PLAIN, 784)
    assert work.flops / 1e9 == pytest.approx(576, rel=0.005)
    patch = 2 * 784 * 1024 * 768
    assert (work.float_flops - patch) / 1e9 == pytest.approx(60, rel=0.01)


def test_prefill_of_the_2b(published_2b: ModelConfig) -> None:
    # Counted for 231 tokens that attend to all: 644 GFLOP. A token attends only to earlier ones.
    work = prefill_work(published_2b, FAST, PLAIN, 231)
    unseen = 4 * (231 * 230 // 2) * 2048 * 28
    assert (work.flops + unseen) / 1e9 == pytest.approx(644, rel=0.005)


def test_decode_computes_every_parameter_once(published_2b: ModelConfig) -> None:
    # 1.721 G parameters with the tied head, 2 operations each; norms are negligible.
    assert decode_work(published_2b, EXACT, PLAIN, 0).flops / 2e9 == pytest.approx(1.721, rel=0.002)


def test_keys_and_values_of_the_2b(published_2b: ModelConfig) -> None:
    plain = kv_bytes_per_token(published_2b, PLAIN)
    assert plain == 2 * 28 * 8 * 128 * 4
    assert kv_bytes_per_token(published_2b, NATIVE_LAYOUT) == plain // 2  # half precision
    longer, shorter = (decode_work(published_2b, FAST, PLAIN, n).read_bytes for n in (1000, 200))
    assert longer - shorter == 800 * plain


def test_prefill_is_the_sum_of_its_tokens(published_2b: ModelConfig) -> None:
    # Equal but for the last layer's rows and the head, which a prompt computes for its last token.
    tokens = [decode_work(published_2b, EXACT, PLAIN, cached).flops for cached in range(16)]
    text = published_2b.text
    hidden, wide = text.hidden_size, text.intermediate_size
    head = 2 * text.vocab_size * hidden
    last = 2 * (text.num_heads * text.head_dim * hidden + 3 * hidden * wide)
    assert prefill_work(published_2b, EXACT, PLAIN, 16).flops == sum(tokens) - 15 * (head + last)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", RECIPES)
def test_bytes_are_those_of_an_export(name: str, layout: Layout, tmp_path: Path) -> None:
    recipe, config = RECIPES[name], load_config(NANO)
    if layout != PLAIN and recipe is EXACT:
        pytest.skip("fp32 is computed by ONNX Runtime's operators only")
    artifact = export(NANO, tmp_path / name, recipe, layout=layout)

    def size(*parts: str) -> int:
        return sum(artifact.graph(part).with_suffix(".bin").stat().st_size for part in parts)

    own_kv = kv_bytes_per_token(config, layout)  # the new token's, which decoding writes and reads
    decoded = decode_work(config, recipe, layout, 0).read_bytes - own_kv
    # Files also hold norms, biases and padding: a larger share of a tiny model.
    assert 0.93 < decoded / size("decode", "head") <= 1
    prefilled = prefill_work(config, recipe, layout, 1).read_bytes - own_kv
    assert 0.93 < prefilled / size("prefill", "head") <= 1
    vision = config.vision
    values = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
    frames = 4 * values * vision.hidden_size  # the embedding of videos, which pictures do not read
    stored = size("vision") - frames
    assert 0.93 < encode_work(config, recipe, layout, 4).read_bytes / stored <= 1


def test_work_adds_up() -> None:
    assert Work(1, 2, 3) + Work(10, 20, 30) == Work(11, 22, 33)
    assert Work(1, 2, 3) * 4 == Work(4, 8, 12)
    assert Work(1, 2, 3).flops == 3
