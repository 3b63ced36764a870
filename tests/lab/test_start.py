"""Times from process start, of real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from qwink.lab import start
from qwink.lab.record import read

ROOT = Path(__file__).resolve().parents[2]


def test_times_of_nano(tiny_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QWINK_HOME", str(tiny_home))
    picture, out = ROOT / "examples" / "receipt-line.png", tmp_path / "start.json"
    start.main(["--model=nano", f"--picture={picture}", "--rounds=1", f"--out={out}"])
    found = read(out)
    assert found.kind == "start"
    assert found.facts is not None
    assert found.measured["ask_ms"]["nano"]["count"] == 1
    assert found.measured["ask_ms"]["nano"]["median"] > found.measured["import_qwink_ms"]["median"]
