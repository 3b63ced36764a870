"""Answers of several sets of kernels, counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qwink import native
from qwink.lab import agreement
from qwink.lab.agreement import compare


def test_equal_answers_are_counted() -> None:
    found = compare("avx2", ["one", "two", "", "abcd"], ["one", "twist", "", "abcd"])
    assert (found.kernels, found.num_answers, found.num_equal) == ("avx2", 4, 3)
    assert found.mean_prefix == pytest.approx((1 + 2 / 5 + 1 + 1) / 4)
    with pytest.raises(ValueError, match="zip"):
        compare("avx2", ["one"], [])


def test_nano_with_the_sets_of_this_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QWINK_HOME", str(tmp_path))
    supported = native.capabilities().supported
    if not supported:
        pytest.skip(native.capabilities().advice)
    out, name = tmp_path / "agreement.json", supported[-1]
    arguments = ["nano", "--recipe=fast", "--pictures=2", "--tokens=6", f"--out={out}"]
    agreement.main([*arguments, f"--kernels={supported[0]}", f"--kernels={name}"])
    result = json.loads(out.read_text())
    assert result["reference"] == supported[0]
    assert result["kernels"][supported[0]] == {"num_answers": 2, "num_equal": 2, "mean_prefix": 1.0}
    assert result["kernels"][name]["num_answers"] == 2
    assert native.capabilities().kernels == supported[0]  # chosen again


def test_a_set_that_does_not_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        agreement.main(["nano", "--kernels=mmx", f"--out={tmp_path / 'x.json'}"])
    assert "mmx" in capsys.readouterr().err
