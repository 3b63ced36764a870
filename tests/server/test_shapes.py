"""Answers in a shape over HTTP: OpenAI's client and vLLM's fields, whatever the weights are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel, ConfigDict, Field

from tests.server.process import Server, starter, user

Post = dict[str, Any]


class Item(BaseModel):
    model_config = ConfigDict(extra="forbid")

    kind: Literal["food", "drink", "other"]
    quantity: int = Field(ge=1, le=99)


class Receipt(BaseModel):
    model_config = ConfigDict(extra="forbid")

    seller: str = Field(max_length=8)
    paid: bool
    items: list[Item] = Field(max_length=2)


SCHEMA = Receipt.model_json_schema()
PATTERN = "[A-Z]{2}-[0-9]{3}"
GRAMMAR = 'start: "total: " /[0-9]{2}/'


@pytest.fixture(scope="module", params=["nano", "random"])
def shaped(
    request: pytest.FixtureRequest,
    tiny_checkpoint: tuple[Path, Any],
    tiny_home: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    servers = starter(tiny_checkpoint[0], tiny_home, tmp_path_factory.mktemp("shaped"))
    flags = ("--model", "nano") if request.param == "nano" else ()
    yield next(servers)(*flags, "--served-model-name", "tiny", "--engine", "onnx").wait_ready()
    next(servers, None)


@pytest.fixture
def client(shaped: Server) -> Iterator[openai.OpenAI]:
    with shaped.client() as client:
        yield client


def post(server: Server, path: str = "chat/completions", **fields: Any) -> Any:
    asked = {"input": "Hi"} if path == "responses" else {"messages": [user("Hi")]}
    body = {"model": "tiny"} | asked | fields
    return server.http.post(f"{server.address}/v1/{path}", json=body)


def text_of(response: Any) -> str:
    assert response.status_code == 200, response.text
    choice = response.json()["choices"][0]
    assert choice["finish_reason"] == "stop"
    text: str = choice["message"]["content"]
    return text


@pytest.mark.parametrize("seed", range(3))
def test_parse(client: openai.OpenAI, seed: int) -> None:
    answer = client.chat.completions.parse(
        model="tiny",
        messages=[user("What was bought?")],
        response_format=Receipt,
        temperature=1.5,
        seed=seed,
        max_tokens=400,
    )
    assert isinstance(answer.choices[0].message.parsed, Receipt)
    response = client.responses.parse(
        model="tiny",
        input="What was bought?",
        text_format=Receipt,
        temperature=1.5,
        max_output_tokens=400,
        extra_body={"seed": seed},
    )
    assert isinstance(response.output_parsed, Receipt)
    assert response.text is not None
    assert response.text.format is not None
    assert response.text.format.type == "json_schema"


def test_streamed(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="tiny", messages=[user("Hi")], response_format=Receipt, max_tokens=400
    ) as stream:
        for _ in stream:
            pass
        found = stream.get_final_completion().choices[0]
    assert found.finish_reason == "stop"
    assert found.message.parsed == Receipt.model_validate_json(found.message.content or "")


JSON: list[Post] = [
    {"response_format": {"type": "json_schema", "json_schema": {"name": "r", "schema": SCHEMA}}},
    {"structured_outputs": {"json": SCHEMA}},
    {"structured_outputs": {"json": json.dumps(SCHEMA), "disable_any_whitespace": True}},
    {"guided_json": SCHEMA},
    {"guided_json": json.dumps(SCHEMA), "guided_regex": None},
]


@pytest.mark.parametrize("fields", JSON, ids=lambda fields: str(fields)[:40])
def test_json_by_a_schema(shaped: Server, fields: Post) -> None:
    text = text_of(post(shaped, max_tokens=400, temperature=1, seed=1, **fields))
    Receipt.model_validate_json(text)
    assert text == json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"))


OTHERS: list[tuple[Post, str]] = [
    ({"structured_outputs": {"regex": PATTERN}}, PATTERN),
    ({"guided_regex": PATTERN}, PATTERN),
    ({"structured_outputs": {"grammar": GRAMMAR}}, "total: [0-9]{2}"),
    ({"guided_grammar": 'root ::= "total: " [0-9] [0-9]'}, "total: [0-9]{2}"),
    ({"structured_outputs": {"choice": ["yes", "no", "not now"]}}, "yes|no|not now"),
    ({"guided_choice": ["yes", "no"]}, "yes|no"),
]


@pytest.mark.parametrize(("fields", "pattern"), OTHERS, ids=lambda value: str(value)[:40])
def test_other_shapes(shaped: Server, fields: Post, pattern: str) -> None:
    for seed in range(3):
        answer = post(shaped, temperature=1.5, seed=seed, **fields)
        assert re.fullmatch(pattern, text_of(answer))
        probabilities = answer.json().get("choice_probabilities")
        if "|" not in pattern:
            assert probabilities is None
            continue
        assert {one["text"] for one in probabilities} == set(pattern.split("|"))
        assert sum(one["probability"] for one in probabilities) == pytest.approx(1)


@pytest.mark.parametrize(
    "fields",
    [{"response_format": {"type": "json_object"}}, {"structured_outputs": {"json_object": True}}],
)
def test_any_object(shaped: Server, fields: Post) -> None:
    """Random weights need not end an object; what has ended is one."""
    answer = post(shaped, max_tokens=60, **fields).json()
    text = answer["choices"][0]["message"]["content"]
    assert text.startswith("{")
    if answer["choices"][0]["finish_reason"] == "stop":
        assert isinstance(json.loads(text), dict)
    else:
        assert any("does not have the shape" in warning for warning in answer["warnings"])


def test_a_cut_answer_says_so(shaped: Server) -> None:
    answer = post(shaped, max_tokens=5, guided_json=SCHEMA).json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert any("does not have the shape" in warning for warning in answer["warnings"])
    form = {"format": {"type": "json_schema", "name": "r", "schema": SCHEMA}}
    answer = post(shaped, "responses", max_output_tokens=5, text=form).json()
    assert answer["status"] == "incomplete"
    assert any("does not have the shape" in warning for warning in answer["warnings"])


def form(**schema: Any) -> Post:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "r", **schema}}}


SET = {"type": "array", "uniqueItems": True, "maxItems": 1}
BAD: list[tuple[Post, str, str]] = [
    ({"response_format": "json"}, "response_format", "json_schema"),
    ({"response_format": {"type": "yaml"}}, "response_format.type", "json_object"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "object"),
    (form(), "response_format.json_schema.schema", "missing"),
    (form(schema=[]), "response_format.json_schema.schema", "object"),
    (form(schema={}, strict=1), "response_format.json_schema.strict", "true, false"),
    (form(schema={"type": "objekt"}), "response_format.json_schema.schema", "objekt"),
    (form(schema=SET, strict=True), "response_format.json_schema.schema", "uniqueItems"),
    (form(schema={"enum": []}), "response_format.json_schema.schema", "Unsatisfiable"),
    (form(schema={"enum": ["x" * 300_000]}), "response_format.json_schema.schema", "KiB"),
    ({"guided_json": 1}, "guided_json", "schema"),
    ({"guided_json": "{"}, "guided_json", "not JSON"),
    ({"guided_regex": "("}, "guided_regex", "unclosed"),
    ({"guided_regex": "((a{100}){100}){100}"}, "guided_regex", "repetitions"),
    ({"guided_choice": []}, "guided_choice", "none empty"),
    ({"guided_choice": "yes"}, "guided_choice", "list"),
    ({"guided_grammar": "start: ("}, "guided_grammar", "Expected"),
    ({"structured_outputs": []}, "structured_outputs", "one of json"),
    ({"structured_outputs": {}}, "structured_outputs", "one of json"),
    ({"structured_outputs": {"json": {}, "regex": "a"}}, "structured_outputs", "one of json"),
    ({"structured_outputs": {"jason": {}}}, "structured_outputs.jason", "unknown"),
    ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs.structural_tag",
     "not supported"),
    ({"guided_regex": "a", "guided_json": {}}, "guided_regex", "already"),
    ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "guided_regex", "already"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param", "words"), BAD, ids=lambda value: str(value)[:40])
def test_errors_name_the_field(shaped: Server, fields: Post, param: str, words: str) -> None:
    response = post(shaped, **fields)
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["param"], error["code"]) == (param, "invalid_value")
    assert error["message"].startswith(f"{param}: ")
    assert words in error["message"]


def test_errors_of_responses(shaped: Server) -> None:
    for form, param in (
        ({"type": "json_schema", "name": "r", "schema": {"type": "x"}}, "text.format.schema"),
        ({"type": "json_schema", "name": "r"}, "text.format.schema"),
        ({"type": "grammar"}, "text.format.type"),
    ):
        error = post(shaped, "responses", text={"format": form}).json()["error"]
        assert error["param"] == param


def test_what_cannot_be_enforced_is_a_warning_unless_strict(shaped: Server) -> None:
    answer = post(shaped, max_tokens=100, **form(schema=SET)).json()
    assert any("uniqueItems" in warning for warning in answer["warnings"])
