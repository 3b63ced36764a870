"""The performance page is made from its results; --check finds differences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import qwink
from qwink.export.recipe import RECIPES
from qwink.lab.cost.card import Measured, cost_card
from qwink.lab.cost.ceilings import Ceilings
from qwink.lab.load.client import Reply
from qwink.lab.load.measure import LoadResult, summarise_level
from qwink.lab.record import record
from qwink.lab.stages.measure import ColdStart, SizeResult, StagesResult, ThreadsResult
from qwink.lab.statistics import Summary, summarise
from qwink.model.config import load_config
from qwink.types import STAGES
from scripts.make_performance import stale, write

NANO = Path(qwink.__file__).parent / "assets" / "nano"


def around(median: float) -> Summary:
    return summarise([0.9 * median, median, 1.1 * median])


def stages_result(encode_ms: float = 50.0) -> dict[str, Any]:
    ceilings = Ceilings(2, 2000.0, 200.0, 20.0)
    config = load_config(NANO)

    def size(name: str, tokens: int) -> SizeResult:
        measured = Measured(encode_ms, 20.0, 2.5)
        return SizeResult(
            name,
            tokens,
            tokens + 20,
            16,
            {stage: around(encode_ms if stage == "encode" else 10.0) for stage in STAGES},
            around(100.0),
            around(2.5),
            around(140.0),
            2 * 10**8,
            cost_card(config, RECIPES["fast"], "tiles16", tokens, tokens + 20, ceilings, measured),
        )

    sizes = (size("224x224", 49), size("448x448", 196))
    runs = (ThreadsResult(2, ceilings, ColdStart("224x224", 300.0, 420.0, 310.0), sizes),)
    return record("stages", StagesResult("nano", "fast", (1920, 1440), 3, runs)).document()


def load_result() -> dict[str, Any]:
    replies = [Reply(None, 300.0, 100.0, 20.0, (20.0,) * 10, 11), Reply("HTTP 429")]
    levels = tuple(summarise_level(users, replies, 0.5) for users in (1, 4))
    result = LoadResult("http://x", "nano", "?", (1920, 1440), 64, 0.0, levels)
    return record("load", result).document()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with two results."""
    folder = tmp_path / "benchmarks" / "results"
    folder.mkdir(parents=True)
    (folder / "stages-nano.json").write_text(json.dumps(stages_result()))
    (folder / "load-nano.json").write_text(json.dumps(load_result()))
    (tmp_path / "docs").mkdir()
    return tmp_path


def test_page_shows_what_was_measured(root: Path) -> None:
    write(root)
    page = (root / "docs" / "performance.md").read_text("utf-8")
    assert "| 448x448 | 196 | 10 | 10 | 50 | 10 | 100 |" in page
    assert "1 of 2, 1× HTTP 429" in page
    # 100 ms and 63 tokens of 2.5 ms: 257.5 ms an image.
    assert "| nano | 0.26 | 13981 | 0.0715 | 0.3 |" in page
    for image in ("stages-nano", "load-nano"):
        assert f"](images/{image}.svg)" in page
        assert (root / "docs" / "images" / f"{image}.svg").is_file()
    for heading in ("First token and decoding", "Start", "Caches"):  # without results
        assert f"## {heading}" not in page
    assert "random weights" in page.lower()
    assert "qwink verify" in page


def test_writing_again_changes_nothing(root: Path) -> None:
    write(root)
    before = {path: path.read_bytes() for path in (root / "docs").rglob("*.*")}
    write(root)
    assert {path: path.read_bytes() for path in (root / "docs").rglob("*.*")} == before
    assert stale(root) == []


def test_new_results_make_page_and_chart_stale(root: Path) -> None:
    write(root)
    result = root / "benchmarks" / "results" / "stages-nano.json"
    result.write_text(json.dumps(stages_result(encode_ms=51.0)))
    assert stale(root) == [str(root / "docs" / "performance.md"), "stages-nano.svg"]
    write(root)
    assert stale(root) == []


def test_edits_by_hand_make_the_page_stale(root: Path) -> None:
    write(root)
    page = root / "docs" / "performance.md"
    page.write_text(page.read_text("utf-8").replace("13981", "20000"), "utf-8")
    assert stale(root) == [str(page)]
    (root / "docs" / "images" / "load-nano.svg").unlink()
    assert stale(root) == [str(page), "load-nano.svg"]
