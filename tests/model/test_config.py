"""Reading config.json and the other configuration files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qwink.errors import CheckpointError
from qwink.model.config import (
    GenerationDefaults,
    PreprocessorConfig,
    load_config,
    load_generation_defaults,
)
from qwink.types import SamplingParams
from tests.checkpoints import write_checkpoint

PUBLISHED = Path(__file__).parents[2] / "benchmarks" / "published"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The published 2B checkpoint, without its weights."""
    for target, source in (
        ("config.json", "config-2b.json"),
        ("generation_config.json", "generation_config.json"),
        ("preprocessor_config.json", "preprocessor_config.json"),
    ):
        (tmp_path / target).write_bytes((PUBLISHED / source).read_bytes())
    return tmp_path


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def test_reads_the_published_2b(folder: Path) -> None:
    config = load_config(folder)
    text, vision = config.text, config.vision
    assert (text.num_layers, text.hidden_size, text.num_heads, text.num_kv_heads) == (
        28,
        2048,
        16,
        8,
    )
    assert (text.head_dim, text.intermediate_size, text.vocab_size) == (128, 6144, 151936)
    assert text.mrope_section == (24, 20, 20)
    assert text.rope_theta == 5e6
    assert text.tie_word_embeddings
    assert (vision.depth, vision.hidden_size, vision.head_dim) == (24, 1024, 64)
    assert vision.deepstack_layers == (5, 11, 17)
    assert vision.merge_size == 2
    assert config.preprocessor == PreprocessorConfig(65_536, 16_777_216)
    assert config.image_token_id == 151655
    assert config.eos_token_ids == (151645, 151643)
    assert config.name == folder.name


@pytest.mark.parametrize("size", ["4b", "8b", "tiny"])
def test_reads_the_other_sizes(folder: Path, size: str) -> None:
    (folder / "config.json").write_bytes((PUBLISHED / f"config-{size}.json").read_bytes())
    assert load_config(folder).text.tie_word_embeddings == (size != "8b")


def test_both_formats_give_the_same_config(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    write_checkpoint(folder)
    published = load_config(folder)
    write_checkpoint(folder, style="transformers5")
    assert "rope_scaling" not in json.loads((folder / "config.json").read_text())["text_config"]
    assert load_config(folder) == published


def test_name_inside_a_hub_cache(folder: Path) -> None:
    snapshot = folder / "models--Qwen--Qwen3-VL-2B-Instruct" / "snapshots" / "0123abcd"
    snapshot.parent.mkdir(parents=True)
    snapshot.symlink_to(folder)
    # The linked snapshot resolves to its target, whose path does not name the repository.
    assert load_config(snapshot).name == folder.name
    snapshot.unlink()
    snapshot.mkdir()
    for path in folder.glob("*.json"):
        (snapshot / path.name).write_bytes(path.read_bytes())
    assert load_config(snapshot).name == "Qwen3-VL-2B-Instruct"


def test_generation_defaults(folder: Path) -> None:
    defaults = load_generation_defaults(folder)
    assert defaults == GenerationDefaults(True, 0.7, 20, 0.8, 1.0, (151645, 151643))
    assert defaults.sampling(64) == SamplingParams(64, temperature=0.7, top_k=20, top_p=0.8)


def test_generation_defaults_are_greedy_without_sampling(folder: Path) -> None:
    path = folder / "generation_config.json"
    edit(path, lambda values: values.update(do_sample=False, repetition_penalty=1.05))
    params = load_generation_defaults(folder).sampling()
    assert params == SamplingParams(temperature=0.0, repetition_penalty=1.05)
    path.unlink()
    assert load_generation_defaults(folder) == GenerationDefaults()


def test_end_token_may_be_in_config_json_only(folder: Path) -> None:
    (folder / "generation_config.json").unlink()
    assert load_config(folder).eos_token_ids == (151645,)
    edit(folder / "config.json", lambda values: values["text_config"].pop("eos_token_id"))
    with pytest.raises(CheckpointError, match="eos_token_id is missing"):
        load_config(folder)


def test_tying_may_be_in_text_config_only(folder: Path) -> None:
    path = folder / "config.json"
    edit(path, lambda values: values.pop("tie_word_embeddings"))
    assert load_config(folder).text.tie_word_embeddings
    edit(path, lambda values: values.update(tie_word_embeddings=False))
    assert not load_config(folder).text.tie_word_embeddings


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, PreprocessorConfig()),
        ({"min_pixels": 4096, "max_pixels": 8192}, PreprocessorConfig(4096, 8192)),
        ({"size": {"shortest_edge": 1024, "longest_edge": 2048}}, PreprocessorConfig(1024, 2048)),
        (
            {"size": {"shortest_edge": 1024, "longest_edge": 2048}, "max_pixels": 4096},
            PreprocessorConfig(1024, 4096),
        ),
        (
            {"image_mean": [0.1, 0.2, 0.3], "image_std": [1, 1, 2]},
            PreprocessorConfig(image_mean=(0.1, 0.2, 0.3), image_std=(1.0, 1.0, 2.0)),
        ),
    ],
)
def test_preprocessor(folder: Path, values: dict[str, Any], expected: PreprocessorConfig) -> None:
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps(values))
    assert load_config(folder).preprocessor == expected
    path.unlink()
    assert load_config(folder).preprocessor == PreprocessorConfig()
    # transformers 5 saves a processor in one file
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": values}))
    assert load_config(folder).preprocessor == expected


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("config.json", lambda v: v.update(model_type="qwen2_5_vl"), "found 'qwen2_5_vl'"),
        ("config.json", lambda v: v.update(model_type="qwen3_vl_moe"), "mixture-of-experts"),
        ("config.json", lambda v: v.pop("model_type"), "model_type should be 'qwen3_vl'"),
        (
            "config.json",
            lambda v: v.update(quantization_config={"quant_method": "fp8"}),
            r"quantised \(fp8\)",
        ),
        ("config.json", lambda v: v.pop("text_config"), "text_config is missing"),
        ("config.json", lambda v: v.update(vision_config=3), "vision_config should be an object"),
        ("config.json", lambda v: v.pop("image_token_id"), "image_token_id is missing"),
        ("config.json", lambda v: v.update(image_token_id=151936), "beyond the vocabulary"),
        (
            "config.json",
            lambda v: v["text_config"].pop("num_hidden_layers"),
            "text_config.num_hidden_layers is missing",
        ),
        (
            "config.json",
            lambda v: v["text_config"].update(hidden_size="big"),
            'text_config.hidden_size should be a whole number of at least 1, found "big"',
        ),
        ("config.json", lambda v: v["text_config"].update(hidden_size=64), "should be equal"),
        ("config.json", lambda v: v["text_config"].update(hidden_act="relu"), "'silu'"),
        ("config.json", lambda v: v["text_config"].update(rms_norm_eps=0), "above 0"),
        ("config.json", lambda v: v["text_config"].update(attention_bias=1), "true or false"),
        ("config.json", lambda v: v["text_config"].update(num_key_value_heads=5), "do not divide"),
        ("config.json", lambda v: v["text_config"].update(head_dim=64), "head_dim / 2 = 32"),
        (
            "config.json",
            lambda v: v["text_config"]["rope_scaling"].update(rope_type="yarn"),
            "text_config.rope_scaling.rope_type should be 'default', found \"yarn\"",
        ),
        (
            "config.json",
            lambda v: v["text_config"]["rope_scaling"].update(mrope_interleaved=False),
            "mrope_interleaved",
        ),
        (
            "config.json",
            lambda v: v["text_config"]["rope_scaling"].update(mrope_section=[64]),
            "3 whole numbers",
        ),
        (
            "config.json",
            lambda v: v["vision_config"].update(hidden_act="quick_gelu"),
            "'gelu_pytorch_tanh'",
        ),
        (
            "config.json",
            lambda v: v["vision_config"].update(deepstack_visual_indexes=[5, 24]),
            "within the 24 layers",
        ),
        ("config.json", lambda v: v["vision_config"].update(num_heads=7), "divide into 7 heads"),
        (
            "config.json",
            lambda v: v["vision_config"].update(num_position_embeddings=2300),
            "a square",
        ),
        ("config.json", lambda v: v["text_config"].update(num_hidden_layers=2), "outnumber"),
        ("preprocessor_config.json", lambda v: v.update(patch_size=14), "patch_size should be 16"),
        ("preprocessor_config.json", lambda v: v.update(min_pixels=10**9), "above max_pixels"),
        ("preprocessor_config.json", lambda v: v.update(image_std=[0, 1, 1]), "above 0"),
        ("preprocessor_config.json", lambda v: v.update(image_mean=[0.5]), "three numbers"),
        ("generation_config.json", lambda v: v.update(top_p="high"), "a number above 0"),
        ("generation_config.json", lambda v: v.update(eos_token_id=["x"]), "whole numbers"),
    ],
)
def test_refuses(
    folder: Path, file: str, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    edit(folder / file, change)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_config(folder)
    assert str(folder / file) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "missing"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[]", "expected a JSON object, found list"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git-LFS pointer"),
    ],
)
def test_refuses_a_damaged_file(folder: Path, content: bytes | None, message: str) -> None:
    path = folder / "config.json"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_config(folder)
    assert str(path) in str(caught.value)
