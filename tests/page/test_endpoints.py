"""Endpoints that the page uses: budgets, stored pictures, waiting for the model."""

from __future__ import annotations

import hashlib

import pytest

from qwink.server.budgets import TokenTimes
from qwink.types import Result, Timings, Usage
from tests.page.visit import line
from tests.server.process import Server


def test_budgets(server: Server) -> None:
    document = server.http.get(f"{server.address}/v1/budgets").json()
    assert document["model"] == "nano"
    assert set(document["tasks"]) == {"ocr", "document", "describe", "locate", "frame"}
    assert document["max_pixels"] == document["tasks"]["ocr"]["max_pixels"] == 50176
    assert set(document["ms_per_token"]) == {"answers", "encode_ms", "prefill_ms", "generate_ms"}


def test_which_pictures_are_known(server: Server) -> None:
    content = line("Known 1")
    name = f"qwink:sha256:{hashlib.sha256(content).hexdigest()}"
    unknown = f"qwink:sha256:{'0' * 64}"
    url = f"{server.address}/v1/images"
    assert server.http.post(url, content=content).json()["id"] == name
    found = server.http.get(url, params={"id": [name, unknown, "nonsense", name]}).json()
    assert [one["id"] for one in found["data"]] == [name]
    refused = server.http.get(url)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "id")


@pytest.mark.parametrize("wait", ["61", "-1", "1.5", "soon", ""])
def test_ready_waits_for_seconds(server: Server, wait: str) -> None:
    url = f"{server.address}/ready"
    assert server.http.get(url, params={"wait": "60"}).status_code == 200
    refused = server.http.get(url, params={"wait": wait})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "wait")


def result(timings: Timings, usage: Usage) -> Result:
    return Result("", "stop", usage, timings, "nano")


def test_token_times_average_recent_answers() -> None:
    token_times = TokenTimes()
    nothing = {"answers": 0, "encode_ms": None, "prefill_ms": None, "generate_ms": None}
    assert token_times.document() == nothing
    computed = Timings(
        encode_ms=200, prefill_ms=120, generate_ms=90, origins={"encode": "computed"}
    )
    token_times.add(result(computed, Usage(120, 10, image_tokens=100)))
    measured = {"answers": 1, "encode_ms": 2.0, "prefill_ms": 1.0, "generate_ms": 10.0}
    assert token_times.document() == measured
    reused = Timings(prefill_ms=60, generate_ms=90, origins={"encode": "reused"})
    token_times.add(result(reused, Usage(220, 10, image_tokens=100, cached_tokens=160)))
    assert token_times.document() == measured | {"answers": 2}
    for _ in range(20):
        token_times.add(result(computed, Usage(180, 19, image_tokens=50)))
    late = token_times.document()
    assert 3.8 < late["encode_ms"] <= 4
    assert 5 <= late["generate_ms"] < 5.2
