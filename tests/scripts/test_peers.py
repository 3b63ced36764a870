"""The part of the performance page about other engines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from qwink.lab.peers.compare import summary, times_faster
from qwink.lab.peers.turns import Table
from qwink.lab.record import record
from scripts.performance import peers
from scripts.performance.layout import Results


def result() -> dict[str, Any]:
    table = Table()
    for factor in (0.9, 1.0, 1.1):
        for name, first, token in (("fast", 1000.0, 40.0), ("other", 3000.0, 60.0)):
            values = {"first_token_ms": first * factor, "decode_ms_per_token": token}
            counts = {"num_prompt_tokens": 213, "num_visual_tokens": 196, "peak_rss_bytes": 1 << 30}
            table.add(name, values | counts)
            table.versions[name] = {f"{name}-package": "1.2"}
    measured = {
        "work": {"num_prompt_tokens": 213, "num_visual_tokens": 196},
        **{"side": 448, "num_tokens": 16, "threads": 2, "rounds": 3},
        "contenders": summary(table),
        "times_faster": {"fast": times_faster(table, "fast", ["other"])},
        "absent": {"third": "no compiler"},
        "settings": {"other": {"model": "{folder}/model.bin", "properties": {"GROUP": 128}}},
    }
    return record("peers", measured).document()


def test_shows_times_ratios_and_absent_peers(tmp_path: Path) -> None:
    (tmp_path / "peers.json").write_text(json.dumps(result()))
    section = peers.section(Results(tmp_path))
    assert section is not None
    assert (
        "| `other` | 3000 (2700–3300) | 3270 | 60.0 (60.0–60.0) | 60.0 | — | 1.0 |" in section.text
    )
    assert "| `other` | **3.00** (3.00–3.00) | **1.50** (1.50–1.50) | — |" in section.text
    assert "- `third` is absent: no compiler" in section.text
    assert "other-package 1.2" in section.text
    assert "Settings tried" not in section.text


def test_shows_the_settings_tried(tmp_path: Path) -> None:
    for name in ("peers", "peers-other"):
        (tmp_path / f"{name}.json").write_text(json.dumps(result()))
    section = peers.section(Results(tmp_path))
    assert section is not None
    assert "| `other` | model.bin, GROUP 128 | 3000 (2700–3300) | **3.00** |" in section.text


def test_is_left_out_without_results(tmp_path: Path) -> None:
    assert peers.section(Results(tmp_path)) is None
