"""Pictures per hour, over real processes of qwink."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from qwink.lab.peers import throughput
from qwink.lab.peers.base import _reply
from qwink.lab.peers.contenders import CROWDS, Setting


def test_the_best_setting_of_a_peer_takes_turns_with_qwink(
    tiny_checkpoint: tuple[Path, Any],
    tiny_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("QWINK_HOME", str(tiny_home))
    home = tmp_path / "peers"
    (home / "openvino").mkdir(parents=True)
    # qwink itself, installed as if it were another engine.
    (home / "openvino" / "peer.json").write_text(json.dumps({"python": sys.executable}))
    model = str(tiny_checkpoint[0])
    missing = str(tmp_path / "none")
    settings = (
        Setting("works", "openvino", {"model": model, "running": 2}, adapter="qwink_crowd"),
        Setting("fails", "openvino", {"model": missing, "running": 2}, adapter="qwink_crowd"),
        Setting("absent", "llama.cpp", {}),
    )
    monkeypatch.setattr(throughput, "CROWDS", settings)
    out = tmp_path / "throughput.json"
    throughput.main(
        f"--artifact={model} --home={home} --out={out} --threads=1 --running=2 "
        "--pictures=3 --tries=1 --rounds=2 --tokens=3 --side=64".split()
    )
    result = json.loads(out.read_text())
    assert set(result["tried"]) == {"works"}
    assert result["absent"]["absent"].startswith("not installed")
    assert "none" in result["absent"]["fails"]
    assert set(result["contenders"]) == {"qwink", "works"}
    for found in result["contenders"].values():
        rate, spent = found["images_per_hour"]["median"], found["all_ms"]["median"]
        assert found["images_per_hour"]["count"] == 2
        assert rate == pytest.approx(3 * 3.6e6 / spent, rel=0.3)  # medians of two rounds
    assert result["times_more"]["works"]["median"] > 0
    assert json.loads(capsys.readouterr().out).keys() == {"works"}


def test_an_answer_of_another_length_is_refused() -> None:
    class Short:
        def versions(self) -> dict[str, str]:
            return {}

        def answer_all(self, pictures: list[bytes], question: str, num_tokens: int) -> list[int]:
            return [num_tokens, num_tokens - 1]

    with pytest.raises(ValueError, match="3 tokens instead of 4"):
        _reply(Short(), {"pictures": ["", ""], "question": "?", "num_tokens": 4})


def test_settings_have_names_of_their_own() -> None:
    assert len({setting.name for setting in CROWDS}) == len(CROWDS)
    assert all(setting.adapter.endswith("_crowd") for setting in CROWDS)
