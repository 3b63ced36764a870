"""The ladder's part of the performance page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from qwink.lab.ladder.answers import Quality
from qwink.lab.ladder.ladder import LadderResult, RungResult, Times
from qwink.lab.record import Record, record
from scripts.make_performance import stale, write
from scripts.performance import ladder
from scripts.performance.layout import Results

SETTINGS = {"ladder": "cpu", "pictures": 3, "max_image_tokens": 1280, "max_tokens": 8, "threads": 2}


def result(**settings: Any) -> Record[LadderResult]:
    slow = Times(3, 900.0, 1000.0, 900.0, 400.0, 200.0, 800.0, 196.0, 8.0)
    quick = replace(slow, mean_ms=450.0, per_answer_ms=450.0, load_ms=0.0)
    quality = Quality(3, 1.0, 0.75, 0.998, None, 1.0)
    rungs = (
        RungResult("a", "plain service", {}, "pictures", slow, None, None, 1.0, None, None, 0, 2),
        RungResult(
            "d", "+ resident", {}, "pictures", quick, slow, 2.0, 2.0, quality, quality, 1, 2
        ),
    )
    left_out = {"e": "needs a thing"}
    return record("ladder", LadderResult("standin", SETTINGS | settings, rungs, left_out))


def test_rungs_gains_and_agreement(tmp_path: Path) -> None:
    folder = tmp_path / "benchmarks" / "results"
    folder.mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    (folder / "ladder-2b.json").write_text(json.dumps(result().document()))
    write(tmp_path)
    page = (tmp_path / "docs" / "performance.md").read_text("utf-8")
    assert "| a plain service | 900 | 1000 | 400 | 200 | 800 | 900 |  | 1 |" in page
    assert "| d + resident | 450 | 1000 | — | 200 | 800 | 450 | **2.00** | 2 |" in page
    assert "| d + resident | 100% | 75% | 0.998 | same | 1.000 | 1 of 2 |" in page
    assert "Left out: e, which needs a thing." in page
    drawing = (tmp_path / "docs" / "images" / "ladder-2b.svg").read_text("utf-8")
    assert "d + resident" in drawing
    assert "450 ms, 2×" in drawing
    assert stale(tmp_path) == []


def test_a_gpus_ladder_is_shown_only_if_it_ran_on_a_gpu(tmp_path: Path) -> None:
    path = tmp_path / "ladder-gpu.json"
    tried = result(ladder="gpu").document()
    path.write_text(json.dumps(tried))
    assert ladder.section(Results(tmp_path)) is None
    tried["facts"]["hardware"]["accelerator"] = "Some GPU"
    path.write_text(json.dumps(tried))
    section = ladder.section(Results(tmp_path))
    assert section is not None
    assert "Some GPU" in section.text
