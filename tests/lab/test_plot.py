"""Plots are the same for the same data."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from qwink.lab.plot import draw_load, save


def level(users: int, first: float, gap: float | None) -> dict[str, Any]:
    return {
        "concurrency": users,
        "tokens_per_s": 10.0 * users,
        "first_token_ms": {"median": first, "p95": 2 * first},
        "gap_ms": None if gap is None else {"p95": gap},
    }


def test_load(tmp_path: Path) -> None:
    failed = level(8, 0, None) | {"first_token_ms": None}
    levels = [level(1, 100, 5), level(4, 250, 20), failed]
    document = {"model": "nano", "max_tokens": 64, "levels": levels}
    paths = [tmp_path / name for name in ("a.svg", "b.svg")]
    for path in paths:
        save(draw_load(document), path, "of these data")
    first, second = (path.read_text("utf-8") for path in paths)
    assert first == second
    texts = {element.text for element in ElementTree.fromstring(first).iter() if element.text}
    assert {"users at once", "tokens per second", "of these data"} <= texts
    assert "nano, answers of up to 64 tokens" in texts


def test_answers_in_one_piece_have_no_gaps(tmp_path: Path) -> None:
    document = {"model": "m", "max_tokens": 1, "levels": [level(1, 100, None)]}
    save(draw_load(document), tmp_path / "a.svg")
    assert "between pieces" not in (tmp_path / "a.svg").read_text("utf-8")
