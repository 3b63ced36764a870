"""Drafts over HTTP: predictions, counts, and clients that are apart from each other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from qwink.native import capabilities
from qwink.runtime.costs import StepCosts
from qwink.runtime.requests import Model
from qwink.runtime.vlm import VLM
from qwink.server.app import create_app
from qwink.server.options import ServerOptions
from tests.runtime.exact import exact_model

pytestmark = pytest.mark.skipif(
    capabilities().kernels == "onnxruntime", reason="no kernels for this processor"
)
COUNTS = ("accepted_prediction_tokens", "rejected_prediction_tokens")


@pytest.fixture(scope="module")
def model(tiny_checkpoint: tuple[Path, Any], tmp_path_factory: pytest.TempPathFactory) -> Model:
    return exact_model(tiny_checkpoint[0], tmp_path_factory.mktemp("drafts") / "balanced")


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows seem to cost nothing, so that drafts are run whatever time they take here."""
    monkeypatch.setattr(StepCosts, "extra", lambda *_: 0.0)


def post(
    model: Model, asked: Sequence[tuple[dict[str, Any], str]], **options: Any
) -> tuple[list[httpx.Response], str]:
    """Requests one after the other, each with an API key, and the metrics at the end."""

    async def scenario() -> tuple[list[httpx.Response], str]:
        speculate = options.get("speculate", "auto")
        app = create_app(lambda: VLM(model, speculate=speculate), ServerOptions(**options))
        service = app.state.service
        service.start()
        await service.until_loaded(60)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            found = [
                await client.post(
                    "/v1/chat/completions",
                    json={"model": "tiny", "messages": [{"role": "user", "content": "Tell me"}]}
                    | fields,
                    headers={"Authorization": f"Bearer {key}"},
                    timeout=60,
                )
                for fields, key in asked
            ]
            metrics = (await client.get("/metrics")).text
        await service.close()
        return found, metrics

    return asyncio.run(scenario())


def text_of(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    text: str = answer.json()["choices"][0]["message"]["content"]
    return text


def steps(answer: httpx.Response) -> int:
    number: int = answer.json()["timings"]["num_steps"]
    return number


@pytest.mark.parametrize("as_parts", [False, True])
def test_a_prediction_changes_no_text(model: Model, as_parts: bool) -> None:
    asked = {"temperature": 0, "messages": [{"role": "user", "content": "What is the total?"}]}
    (plain,), _ = post(model, [(asked, "")])
    text = text_of(plain)
    content = [{"type": "text", "text": text[:9]}, {"type": "text", "text": text[9:]}]
    prediction = {"type": "content", "content": content if as_parts else text}
    (predicted, streamed), metrics = post(
        model,
        [
            (asked | {"prediction": prediction}, ""),
            (
                asked
                | {"prediction": prediction}
                | {"stream": True, "stream_options": {"include_usage": True}},
                "",
            ),
        ],
    )
    assert text_of(predicted) == text
    details = predicted.json()["usage"]["completion_tokens_details"]
    assert set(details) == set(COUNTS)
    tried = sum(details.values())
    assert tried > 0
    assert steps(predicted) <= steps(plain)
    last = json.loads(streamed.text.split("data: ")[-2])
    assert set(last["usage"]["completion_tokens_details"]) == set(COUNTS)
    assert not any("prediction" in one for one in predicted.json().get("warnings", ()))
    for outcome in ("accepted", "rejected"):
        assert f'qwink_draft_tokens_total{{outcome="{outcome}"}}' in metrics
    assert "qwink_answer_steps_total" in metrics
    assert 'qwink_cache_bytes{cache="earlier_answers"}' in metrics


def test_clients_are_apart(model: Model) -> None:
    """Only the client whose answers are drafted from gets the same answer in fewer steps."""
    asked: dict[str, Any] = {"temperature": 1.0, "seed": 4}
    keys = ("a", "b", "a", "b", "c")
    other_question: dict[str, Any] = {"messages": [{"role": "user", "content": "What is it?"}]}
    requests = [(asked | other_question, "c"), *((asked, key) for key in keys)]
    (_, *found), _ = post(model, requests, api_keys=("a", "b", "c"))
    assert len({text_of(one) for one in found}) == 1
    first, other, again, other_again, third = map(steps, found)
    assert first == other == third
    assert again == other_again < first / 3


def test_off(model: Model) -> None:
    prediction = {"type": "content", "content": "the total"}
    asked = {"temperature": 0, "prediction": prediction}
    found, _ = post(model, [(asked, ""), (asked, "")], speculate="off")
    for one in found:
        assert steps(one) == one.json()["usage"]["completion_tokens"] - 1
        assert one.json()["warnings"][0].startswith("the prediction is not used")
        assert set(one.json()["usage"]["completion_tokens_details"].values()) == {0}


@pytest.mark.parametrize(
    ("prediction", "param"),
    [
        ({"type": "text", "content": "x"}, "prediction.type"),
        ({"type": "content", "content": 3}, "prediction.content"),
        ("x", "prediction"),
    ],
)
def test_wrong_predictions(model: Model, prediction: Any, param: str) -> None:
    (answer,), _ = post(model, [({"prediction": prediction}, "")])
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith(param)
