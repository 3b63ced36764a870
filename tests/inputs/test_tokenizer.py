from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from qwink.errors import CheckpointError
from qwink.inputs.tokenizer import NEVER_SAMPLED, Tokenizer
from tests.tiny import ADDED_TOKENS, SPECIAL_TOKENS, write_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.load(folder)


@pytest.fixture(scope="module")
def library(folder: Path) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


@pytest.mark.parametrize("name", SPECIAL_TOKENS + ADDED_TOKENS)
def test_added_tokens_in_text_stay_text(tokenizer: Tokenizer, name: str) -> None:
    text = f"a{name} b{name}"
    ids = tokenizer.encode_text(text)
    assert not set(ids) & set(tokenizer.added_tokens.values())
    assert tokenizer.decode(ids) == text


def test_template_text_equals_transformers(folder: Path, tokenizer: Tokenizer) -> None:
    reference = transformers.AutoTokenizer.from_pretrained(folder)
    text = "<|im_start|>user\nWhat's in  it? <think>\n\n</think>x<|vision_start|><|image_pad|>é 图"
    assert tokenizer.encode_template(text) == reference(text)["input_ids"]
    assert len(reference) == tokenizer.vocab_size


@given(text=st.text())
@settings(deadline=None)
def test_text_round_trips(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode_text(text)) == unicodedata.normalize("NFC", text)


@given(ids=st.lists(st.integers(0, 560)))
@settings(deadline=None)
def test_decode_equals_the_library(
    library: tokenizers.Tokenizer, tokenizer: Tokenizer, ids: list[int]
) -> None:
    assert tokenizer.decode(ids) == library.decode(ids, skip_special_tokens=True)


def test_ids_by_name(tokenizer: Tokenizer) -> None:
    for name in ("im_start", "im_end", "vision_start", "vision_end", "image_pad"):
        assert getattr(tokenizer, name) == tokenizer.added_tokens[f"<|{name}|>"]
    with pytest.raises(CheckpointError, match="has no <\\|nothing\\|>"):
        tokenizer.token_id("<|nothing|>")


def test_forbidden_ids(tokenizer: Tokenizer) -> None:
    width = tokenizer.vocab_size + 7
    forbidden = tokenizer.forbidden_ids(width)
    assert set(range(tokenizer.vocab_size, width)) <= set(forbidden.tolist())
    assert {tokenizer.token_id(name) for name in NEVER_SAMPLED} <= set(forbidden.tolist())
    assert len(forbidden) == 7 + len(NEVER_SAMPLED)
    assert tokenizer.im_end not in forbidden
    assert np.all(np.diff(forbidden) > 0)
    assert len(tokenizer.forbidden_ids()) == len(NEVER_SAMPLED)
    assert tokenizer.forbidden_ids(5).size == 0


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [
        ({"eos_token_id": [7, 8]}, {}, (7, 8)),
        ({"eos_token_id": 7}, {}, (7,)),
        (None, {"eos_token": "<|endoftext|>"}, ("<|endoftext|>",)),
        ({}, {"eos_token": {"content": "<|endoftext|>"}}, ("<|endoftext|>",)),
        (None, None, ("<|im_end|>",)),
    ],
)
def test_eos_ids(
    tmp_path: Path, generation: object, config: object, expected: tuple[int | str, ...]
) -> None:
    write_tokenizer(tmp_path)
    for name, content in (("generation_config", generation), ("tokenizer_config", config)):
        path = tmp_path / f"{name}.json"
        path.unlink()
        if content is not None:
            path.write_text(json.dumps(content))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.eos_ids == tuple(
        tokenizer.token_id(token) if isinstance(token, str) else token for token in expected
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", None),
        ("tokenizer.json", "{"),
        ("tokenizer.json", "{}"),
        ("generation_config.json", "[]"),
        ("generation_config.json", "\x00"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, name: str, content: str | None) -> None:
    write_tokenizer(tmp_path)
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(CheckpointError, match=name) as caught:
        Tokenizer.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_other_tokenizers_are_refused() -> None:
    library = tokenizers.Tokenizer(tokenizers.models.WordPiece())
    with pytest.raises(CheckpointError, match="byte-level"):
        Tokenizer(library)
