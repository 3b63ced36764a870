"""Answers in a shape, from models with random weights: whatever they prefer, the shape holds."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qwink.engine.onnx import OnnxEngine
from qwink.errors import OptionError, ShapeError
from qwink.export.build import export
from qwink.export.recipe import RECIPES
from qwink.inputs.chat import ChatTemplate
from qwink.inputs.shape import json_object, shape_of
from qwink.inputs.tokenizer import Tokenizer
from qwink.runtime import grammars
from qwink.runtime.costs import StepCosts
from qwink.runtime.grammars import Grammars
from qwink.runtime.listening import listen
from qwink.runtime.requests import Model
from qwink.runtime.vlm import VLM
from qwink.types import Message, Result, SamplingParams, Shape
from tests.runtime.shaped import Rows

RECEIPT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "seller": {"type": "string", "maxLength": 8},
        "total": {"type": "integer", "minimum": 0, "maximum": 999},
        "paid": {"type": "boolean"},
        "items": {
            "type": "array",
            "maxItems": 2,
            "items": {
                "type": "object",
                "properties": {
                    "quantity": {"type": "integer", "minimum": 1, "maximum": 99},
                    "kind": {"enum": ["food", "drink", "other"]},
                },
                "required": ["quantity", "kind"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["seller", "total", "paid", "items"],
    "additionalProperties": False,
}
SHAPES: list[dict[str, Any]] = [
    {"schema": RECEIPT},
    {"regex": r"[A-Z]{2}-[0-9]{3}: (open|closed)\."},
    {"schema": {"enum": ["the total", "the total of this receipt", 12.5, None]}},
    {"grammar": 'start: "total: " NUMBER ("," NUMBER)?\nNUMBER: /[0-9]{1,3}/'},
    {},
    {"schema": {"const": {"picture": "Straße, café 😀", "text": "What is the total?"}}},
]


@pytest.fixture(scope="module")
def exact_model(
    tiny_checkpoint: tuple[Path, Any], tmp_path_factory: pytest.TempPathFactory
) -> Model:
    """The tiny model by our own operators: results do not depend on what runs beside."""
    folder = tiny_checkpoint[0]
    artifact = export(folder, tmp_path_factory.mktemp("fast") / "artifact", RECIPES["fast"])
    engine = OnnxEngine(artifact, 1)
    if not engine.traits.invariant:
        pytest.skip("qwink's own operators do not run here")
    tokenizer, template = Tokenizer.load(folder), ChatTemplate.load(folder)
    return Model("tiny", engine, tokenizer, template, SamplingParams(max_tokens=12))


def ask_all(vlm: VLM, questions: Sequence[tuple[str, dict[str, Any]]]) -> list[Result]:
    with ThreadPoolExecutor(len(questions)) as pool:
        return list(pool.map(lambda one: vlm.ask(None, one[0], **one[1]), questions))


def test_forced_tokens_change_nothing(exact_model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Greedy and drawn, alone and beside other grammars, and with one or several rows a step."""
    questions = [
        (f"What is it, number {seed}?", shape | {"seed": seed, "max_tokens": 90} | drawn)
        for seed, shape in enumerate(SHAPES * 2)
        for drawn in ({"temperature": 0.0}, {"temperature": 1.3, "top_p": 0.95})
    ]
    answers, engines = [], []
    for rows, together, speculate in ((1, 1, "off"), (8, 1, "off"), (8, 6, "auto")):
        engine: Any = Rows(exact_model.engine, rows)
        with (
            monkeypatch.context() as patch,
            VLM(
                replace(exact_model, engine=engine),
                speculate=speculate,  # type: ignore[arg-type]
            ) as vlm,
        ):
            # What rows cost here is left out of account: either nothing, or too much.
            cost = 0.0 if rows > 1 else 1e9
            patch.setattr(StepCosts, "extra", lambda *_, cost=cost: cost)
            found = [
                result
                for first in range(0, len(questions), together)
                for result in ask_all(vlm, questions[first : first + together])
            ]
        answers.append(
            [
                (one.text, one.finish_reason, one.usage.completion_tokens, one.parsed)
                for one in found
            ]
        )
        engines.append(engine)
    assert answers[0] == answers[1] == answers[2]
    assert engines[0].most_rows == 1 < engines[1].most_rows
    assert engines[1].num_steps < 0.8 * engines[0].num_steps
    assert engines[1].num_rows == engines[0].num_rows  # no row is run in vain


def test_logprobs_are_the_models_own(exact_model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forced tokens have theirs too, the same with one row a step and with many."""
    found = []
    for rows in (1, 8):
        engine: Any = Rows(exact_model.engine, rows)
        monkeypatch.setattr(StepCosts, "extra", lambda *_, rows=rows: 0.0 if rows > 1 else 1e9)
        with VLM(replace(exact_model, engine=engine)) as vlm:
            sampling = vlm.split_options({"schema": RECEIPT, "max_tokens": 60})[1]
            message = Message("user", ("What is it?",))
            request = vlm.prepare([message], vlm.split_options({})[0], sampling, num_logprobs=2)
            events = list(listen(vlm.scheduler, request))
        logprobs = [one for event in events for one in event.logprobs]
        assert events[-1].result is not None
        assert len(logprobs) == events[-1].result.usage.completion_tokens
        found.append(logprobs)
    assert found[0] == found[1]
    assert any(one.id != one.top[0][0] for one in found[0])  # the model wanted something else


@pytest.mark.parametrize("seed", range(3))
def test_answers_have_their_shape(vlm: VLM, seed: int) -> None:
    options: dict[str, Any] = {"temperature": 1.5, "seed": seed, "max_tokens": 300}
    receipt = vlm.ask(None, "What is it?", schema=RECEIPT, **options)
    assert receipt.parsed == json.loads(receipt.text)
    assert receipt.text == json.dumps(receipt.parsed, ensure_ascii=False, separators=(",", ":"))
    assert list(receipt.parsed) == list(RECEIPT["properties"])
    found = vlm.ask(None, "What is it?", regex="[a-c]{4}[0-9]{2}", **options)
    assert re.fullmatch("[a-c]{4}[0-9]{2}", found.text)
    assert found.parsed == found.text
    assert (found.finish_reason, found.warnings) == ("stop", ())


def test_a_cut_answer_is_not_passed_off_as_whole(vlm: VLM) -> None:
    cut = vlm.ask(None, "What is it?", schema=RECEIPT, max_tokens=9)
    assert cut.finish_reason == "length"
    assert cut.parsed is None
    assert any("does not have the shape" in warning for warning in cut.warnings)
    stopped = vlm.ask(None, "What is it?", schema=RECEIPT, stop='"total"', max_tokens=90)
    assert stopped.finish_reason == "stop"
    assert stopped.parsed is None
    assert any("does not have the shape" in warning for warning in stopped.warnings)


@pytest.fixture
def shapes(tiny_model: Model) -> Grammars:
    vocab_size = tiny_model.engine.config.text.vocab_size
    return Grammars(
        tiny_model.tokenizer, vocab_size, tiny_model.tokenizer.forbidden_ids(vocab_size)
    )


def forced_text(grammars: Grammars, tokenizer: Any, shape: Shape | None) -> list[int]:
    """The tokens of a shape that allows one text."""
    assert shape is not None
    constraint, _ = grammars.constraint(shape)
    ids = []
    while not constraint.stopped:
        forced = constraint.forced()
        token = forced[0] if forced else int(np.flatnonzero(constraint.mask())[0])
        constraint.accept(token)
        ids.append(token)
    return ids


@pytest.mark.parametrize(
    "text",
    [
        "The total of this receipt is 12.50 euros.",
        "图片里有什么？ 😀👩‍👩‍👧 naïve",
        "<|im_end|>\n<|im_start|>system\n",
        "<think> the total </think>",
        "e\u0301 is e and an accent, not é",
        'a "quoted" \\ \t text\n',
    ],
)
def test_forced_texts_are_spelt_as_by_the_tokenizer(
    shapes: Grammars, tiny_model: Model, text: str
) -> None:
    """Never with a special token, and also where the tokenizer would change the text."""
    tokenizer = tiny_model.tokenizer
    spelt = forced_text(shapes, tokenizer, shape_of(schema={"const": text}))
    written = json.dumps(text, ensure_ascii=False)
    assert b"".join(tokenizer.token_bytes(token) for token in spelt).decode() == written
    assert not set(spelt) & set(tokenizer.added_tokens.values())
    if tokenizer.decode(tokenizer.encode_text(written)) == written:
        assert spelt == tokenizer.encode_text(written)


def test_choices_between_texts_that_share_a_start(shapes: Grammars, tiny_model: Model) -> None:
    """Tokens are forced only as far as the tokenizer cuts both texts alike."""
    tokenizer = tiny_model.tokenizer
    texts = ["the total", "the totally different", "the receipt"]
    shape = shape_of(schema={"enum": texts})
    assert shape is not None
    for text in texts:
        constraint, _ = shapes.constraint(shape)
        for token in tokenizer.encode_text(json.dumps(text)):
            forced = constraint.forced()
            assert not forced or forced[0] == token
            assert forced or constraint.mask()[token]
            constraint.accept(token)
        assert constraint.complete


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"schema": {"type": "text"}}, "text"),
        ({"schema": {"$ref": "#/$defs/Missing"}}, "Missing"),
        ({"schema": {"type": "integer", "minimum": 3, "maximum": 2}}, "greater than maximum"),
        ({"schema": {"type": "array", "uniqueItems": True}}, "uniqueItems"),
        ({"schema": {"type": "string", "pattern": "("}}, "unclosed"),
        ({"regex": "(?=a)b"}, "look"),
        ({"regex": r"[^\s\S]"}, "no answer"),
        ({"grammar": "start: ("}, "Expected"),
        ({"grammar": 'start: "a" start'}, "no end"),
        ({"grammar": "start: <|im_start|>"}, "no answer"),
    ],
)
def test_shapes_that_cannot_be_met_are_refused(
    vlm: VLM, options: dict[str, Any], cause: str
) -> None:
    with pytest.raises(ShapeError, match=re.escape(cause)) as caught:
        vlm.ask(None, "What is it?", **options)
    assert caught.value.option == next(iter(options))
    assert str(caught.value).startswith(f"{caught.value.option}: ")
    assert "\n" not in str(caught.value)


def test_what_is_not_enforced_is_a_warning_unless_strict(vlm: VLM) -> None:
    shape = replace(json_object(), kind="json_schema", source='{"type":"array","uniqueItems":true}')
    with pytest.raises(ShapeError):
        vlm._grammars.constraint(shape)
    _, warnings = vlm._grammars.constraint(replace(shape, strict=False))
    assert "uniqueItems" in warnings[0]


def test_grammars_are_kept_and_bounded(shapes: Grammars, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    compile_shape = grammars.compile_shape

    def counted(shape: Shape, library: Any) -> Any:
        compiled.append(shape)
        return compile_shape(shape, library)

    monkeypatch.setattr(grammars, "compile_shape", counted)
    monkeypatch.setattr(grammars, "MAX_CACHED", 2)
    first, second, third = (shape_of(regex=f"[a-c]{{{count}}}") for count in (1, 2, 3))
    for shape in (first, second, first, third, first, second):
        assert shape is not None
        shapes.constraint(shape)
    assert compiled == [first, second, third, second]


def test_nothing_is_built_before_the_first_shape(vlm: VLM) -> None:
    vlm.ask(None, "What is it?")
    assert vlm._grammars._library is None
    vlm.ask(None, "What is it?", regex="a")
    assert vlm._grammars._library is not None


def test_a_missing_package_is_named(vlm: VLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammars, "find_spec", lambda _: None)
    with pytest.raises(OptionError, match=r"regex needs llguidance.*pip install.*structured"):
        vlm.ask(None, "What is it?", regex="a")
