"""Random schemas and random weights: a finished answer is valid, and none goes on for ever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hypothesis
import jsonschema
import numpy as np
import pytest
from hypothesis import strategies as st

from qwink.inputs.shape import schema_shape
from qwink.inputs.tokenizer import Tokenizer
from qwink.model.rope import mrope_positions
from qwink.runtime.grammars import Grammars
from qwink.runtime.sequence import Sequence
from qwink.types import Prompt, SamplingParams
from tests.tiny import write_tokenizer

V = 800
MOST = 400  # tokens
NAMES = st.sampled_from(["total", "date", "größe", "a b", 'q"uote', "<|im_end|>", "图", "$ref"])
SCALARS = st.one_of(
    st.just({"type": "null"}),
    st.just({"type": "boolean"}),
    st.fixed_dictionaries({"enum": st.lists(
        st.one_of(st.none(), st.booleans(), st.integers(-5, 500), st.text(max_size=5)),
        min_size=1, max_size=4, unique_by=lambda value: json.dumps(value),
    )}),
    st.builds(lambda value: {"const": value}, st.text(max_size=8) | st.integers(0, 99)),
    st.builds(
        lambda low, size: {"type": "integer", "minimum": low, "maximum": low + size},
        st.integers(-100, 100), st.integers(0, 1000),
    ),
    st.builds(
        lambda low, size: {"type": "string", "minLength": low, "maxLength": low + size},
        st.integers(0, 3), st.integers(0, 5),
    ),
    st.sampled_from([
        {"type": "string", "pattern": "^[A-Z]{2}-[0-9]+$"},
        {"type": "string", "pattern": "^(a|b)*c$"},
        {"type": "string", "format": "date"},
        {"type": "string", "format": "date-time"},
        {"type": "string", "format": "uuid"},
        {"type": "number", "minimum": 0, "maximum": 1},
        {"type": "number", "multipleOf": 0.5},
        {"type": ["integer", "null"]},
        {"type": "string"},
        {},
    ]),
)  # fmt: skip


def _object(properties: dict[str, Any], required: list[str], closed: bool) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": sorted(required)}
    return schema | ({"additionalProperties": False} if closed else {})


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    objects = st.dictionaries(NAMES, inner, max_size=4).flatmap(
        lambda found: st.builds(
            _object,
            st.just(found),
            st.lists(st.sampled_from(sorted(found)), unique=True) if found else st.just([]),
            st.integers(0, 4).map(bool),
        )
    )
    lists = st.builds(
        lambda items, low, size: {
            "type": "array", "items": items, "minItems": low, "maxItems": low + size
        },
        inner, st.integers(0, 2), st.integers(0, 2),
    )  # fmt: skip
    tuples = st.builds(
        lambda items: {
            "type": "array", "prefixItems": items, "items": False, "minItems": len(items)
        },
        st.lists(inner, min_size=1, max_size=3),
    )  # fmt: skip
    either = st.builds(
        lambda branches: {"anyOf": branches}, st.lists(inner, min_size=1, max_size=3)
    )
    return st.one_of(objects, lists, tuples, either)


SCHEMAS = st.recursive(SCALARS, _containers, max_leaves=8)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = Path(tmp_path_factory.mktemp("tokenizer"))
    write_tokenizer(folder)
    return Tokenizer.load(folder)


@pytest.fixture(scope="module")
def grammars(tokenizer: Tokenizer) -> Grammars:
    return Grammars(tokenizer, V, tokenizer.forbidden_ids(V))


def answer(
    tokenizer: Tokenizer, grammars: Grammars, schema: Any, seed: int, rows: int
) -> tuple[str, Sequence]:
    """The answer of a model whose logits depend on the number of the token alone."""
    constraint, _ = grammars.constraint(schema_shape(schema))
    positions, following = mrope_positions(9, ())
    prompt = Prompt(np.arange(9), (), positions, following)
    params = SamplingParams(max_tokens=MOST, temperature=1.0, seed=seed)
    forbidden = tokenizer.forbidden_ids(V)
    sequence = Sequence(prompt, params, tokenizer, forbidden, V, constraint=constraint)
    likely = [*tokenizer.eos_ids, *(tokenizer.encode_text(mark)[0] for mark in '"}],')]

    def logits(number: int) -> Any:
        row = np.random.default_rng([seed, number]).normal(0, 2, V).astype(np.float32)
        row[likely] += 5  # so that most answers end
        return row

    text = sequence.accept(logits(0)[None])
    while sequence.finish_reason is None:
        number = len(sequence.generated)
        count = len(sequence.next_ids(rows - 1))
        found = np.stack([logits(number + at) for at in range(count)])
        text += sequence.accept(found[-sequence.num_logits :])
    return text, sequence


@hypothesis.settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(hypothesis.HealthCheck),
)
@hypothesis.given(schema=SCHEMAS, seed=st.integers(0, 2**32 - 1))
def test_finished_answers_are_valid(
    tokenizer: Tokenizer, grammars: Grammars, schema: Any, seed: int
) -> None:
    text, sequence = answer(tokenizer, grammars, schema, seed, 1)
    hypothesis.event(str(sequence.finish_reason))
    assert len(sequence.generated) <= MOST
    if sequence.finish_reason == "stop":
        assert sequence.complete
        jsonschema.validate(json.loads(text), schema)
    else:
        assert not sequence.complete
    drafted, other = answer(tokenizer, grammars, schema, seed, 8)
    assert (drafted, other.generated) == (text, sequence.generated)


def test_most_answers_end(tokenizer: Tokenizer, grammars: Grammars) -> None:
    """So that the test above has something to look at."""
    schema = {"type": "array", "items": {"type": "object"}, "maxItems": 3}
    ends = [answer(tokenizer, grammars, schema, seed, 1)[1].finish_reason for seed in range(30)]
    assert ends.count("stop") > 10
