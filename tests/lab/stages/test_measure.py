"""`qwink bench stages` and `qwink bench cost`, through the command line."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from qwink.errors import OptionError, QwinkError
from qwink.lab.cost.services import services
from qwink.lab.record import Record
from qwink.lab.stages.measure import StagesPlan, measure_stages
from qwink.model.artifact import Artifact
from qwink.types import STAGES
from tests.conftest import RunQwink

SHORT = ("--threads", "1", "--rounds", 2, "--answer-tokens", 3)


@pytest.fixture
def result(qwink: RunQwink, tmp_path: Path) -> dict[str, Any]:
    """A short measurement of nano."""
    out = tmp_path / "result.json"
    ran = qwink(
        *("bench", "stages", "--model", "nano", *SHORT, "--price-per-hour", 0.5, "--out", out)
    )
    assert ran.code == 0, ran.err
    document: dict[str, Any] = json.loads(ran.out.splitlines()[-1])
    assert json.loads(out.read_text("utf-8")) == document
    for words in ("left out: 336x336", "first token", "× floor", "cold start", "price of 1000"):
        assert words in ran.err
    return document


def test_stages_of_nano(result: dict[str, Any], qwink: RunQwink, tmp_path: Path) -> None:
    assert (result["kind"], result["model"], result["recipe"]) == ("stages", "nano", "balanced")
    assert result["facts"]["versions"]["onnxruntime"]
    (run,) = result["runs"]
    assert run["threads"] == run["ceilings"]["threads"] == 1
    (size,) = run["sizes"]
    assert (size["size"], size["image_tokens"]) == ("224x224", 48)
    assert size["prompt_tokens"] > 48
    assert size["answer_tokens"] == 3
    assert set(size["stages_ms"]) == set(STAGES)
    for stage in STAGES:  # computed, not taken from a cache
        assert size["stages_ms"][stage]["min"] > 0
        assert size["stages_ms"][stage]["count"] == 2
    sum_ms = sum(size["stages_ms"][stage]["min"] for stage in STAGES)
    assert sum_ms <= size["total_ms"]["max"]
    assert size["first_token_ms"]["median"] < size["total_ms"]["median"]
    assert 2**24 < size["peak_rss_bytes"] < 2**30
    card = size["card"]
    assert card["token"]["measured_ms"] == size["token_ms"]["median"]
    assert card["encode"]["measured_ms"] == size["stages_ms"]["encode"]["median"]
    assert card["encode"]["times_floor"] > 0
    cold = run["cold_start"]
    assert cold["first_token_ms"] > cold["loaded_ms"] > 0
    bill = result["cost"]["224x224"]
    assert bill["tariff"]["price_per_hour"] == 0.5
    assert bill["service"]["request_ms"] == size["total_ms"]["median"]

    file, out = tmp_path / "stages.json", tmp_path / "cost.json"
    file.write_text(json.dumps(result))
    prices = ("--price-per-hour", 1, "--pay-per-use-price-per-hour", 3, "--rates", "5,50")
    ran = qwink("bench", "cost", file, *prices, "--answer-tokens", 100, "--out", out)
    assert ran.code == 0, ran.err
    document = json.loads(ran.out.splitlines()[-1])
    assert json.loads(out.read_text("utf-8")) == document
    bill = document["bills"]["224x224"]
    expected = size["first_token_ms"]["median"] + 99 * size["token_ms"]["median"]
    assert bill["service"]["request_ms"] == pytest.approx(expected)
    assert [rate["images_per_hour"] for rate in bill["rates"]] == [5, 50]
    assert "break-even" in ran.err


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--threads", "two"), "--threads"),
        (("--threads", "0"), "--threads"),
        (("--sizes", "448"), "448x448"),
        (("--sizes", "448x448"), "out of range"),  # larger than nano allows
        (("--price-per-hour", "0"), "price_per_hour"),
        (("--out", "no/such/folder/x.json"), "folder"),
    ],
)
def test_wrong_options_cost_no_time(qwink: RunQwink, arguments: tuple[str, str], word: str) -> None:
    ran = qwink("bench", "stages", "--model", "nano", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert word in ran.err
    assert len(ran.err.splitlines()) == 1


def test_what_a_process_fails_at_is_told(tiny_home: Path, picture: Path) -> None:
    artifact = Artifact.load(next((tiny_home / "artifacts").iterdir()))
    missing = str(picture.with_name("gone.png"))
    plan = StagesPlan(artifact, missing, (160, 120), (("64x64", 4096),), (1,), rounds=1)
    with pytest.raises(QwinkError, match=r"gone\.png"):
        measure_stages(plan)


def test_a_process_that_dies_is_told(
    tiny_home: Path, picture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = Artifact.load(next((tiny_home / "artifacts").iterdir()))
    plan = StagesPlan(artifact, str(picture), (160, 120), (("64x64", 4096),), (1,), rounds=1)
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(QwinkError, match="ended with code 1"):
        measure_stages(plan)


def result_of(**changes: Any) -> Record[dict[str, Any]]:
    def row(total: float) -> dict[str, Any]:
        summary = {"median": total}
        token = {"median": 10.0}
        return {
            "size": "448x448", "total_ms": summary, "first_token_ms": {"median": 50.0},
            "token_ms": token,
        } | changes  # fmt: skip

    runs = [
        {"threads": 1, "cold_start": {"extra_ms": 900.0}, "sizes": [row(400.0)]},
        {"threads": 2, "cold_start": {"extra_ms": 700.0}, "sizes": [row(200.0)]},
    ]
    return Record("stages", None, {"runs": runs})


def test_the_fastest_number_of_threads_is_priced() -> None:
    ((label, service),) = services(result_of()).items()
    assert label == "448x448"
    assert (service.request_ms, service.images_per_hour) == (200, 18_000)
    assert service.cold_extra_ms == 700


def test_other_answers_and_cold_starts() -> None:
    ((_, service),) = services(result_of(), answer_tokens=11, cold_extra_ms=5.0).items()
    assert (service.request_ms, service.cold_extra_ms) == (150, 5)
    ((_, service),) = services(result_of(token_ms=None), answer_tokens=1).items()
    assert service.request_ms == 50
    with pytest.raises(OptionError, match="one token"):
        services(result_of(token_ms=None), answer_tokens=2)


@pytest.mark.parametrize("kind", ["speed", "stages", "load"])
def test_other_results_have_no_price(kind: str) -> None:
    with pytest.raises(OptionError, match="not a result of"):
        services(Record(kind, None, {"runs": []}))
