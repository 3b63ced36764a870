"""The comparison with other engines, over real processes of ours and of Transformers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers import install
from qwink.lab.peers import compare, speed
from qwink.lab.peers.base import PeerAnswer, _reply
from qwink.lab.peers.contenders import SETTINGS, Contender
from qwink.lab.peers.turns import Table, picture
from qwink.lab.peers.worker import PeerFailed, Worker


@pytest.fixture(scope="module")
def home(tiny_checkpoint: tuple[Path, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Transformers, from this environment; OpenVINO, whose export failed; no llama.cpp."""
    home = tmp_path_factory.mktemp("peers")
    checkpoint = tiny_checkpoint[0]
    assert install.install("transformers", home, checkpoint, sys.executable) is None
    exporter = home / "bin" / "optimum-cli"
    exporter.parent.mkdir()
    exporter.write_text("#!/bin/sh\necho out of memory >&2\nexit 1\n")
    exporter.chmod(0o755)
    reason = install.install("openvino", home, checkpoint, str(exporter.parent / "python"))
    assert reason == "optimum-cli export openvino failed: out of memory"
    return home


def test_contenders_take_turns_and_absent_ones_are_reported(
    home: Path,
    tiny_checkpoint: tuple[Path, Any],
    tiny_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("QWINK_HOME", str(tiny_home))
    out = tmp_path / "peers.json"
    compare.main(
        [f"--artifact=tiny={tiny_checkpoint[0]}", f"--home={home}", f"--out={out}"]
        + [f"--only={name}" for name in ("transformers-bf16", "openvino-int4", "llama.cpp-Q4_0")]
        + ["--threads=1", "--rounds=2", "--cold-starts=1", "--tokens=4"]
    )
    result = json.loads(out.read_text())
    # Both counted the same prompt, so both did the same work.
    assert result["work"]["num_visual_tokens"] == 196
    assert result["work"]["num_prompt_tokens"] > 196
    assert set(result["contenders"]) == {"tiny", "transformers-bf16"}
    for found in result["contenders"].values():
        assert found["first_token_ms"]["count"] == found["decode_ms_per_token"]["count"] == 2
        assert found["cold_start_ms"]["median"] > found["first_token_ms"]["median"]
        assert found["peak_rss_bytes"]["max"] > 1 << 20
    assert result["contenders"]["tiny"]["encode_ms"]["min"] > 0
    assert result["contenders"]["transformers-bf16"]["versions"]["transformers"]
    ratios = result["times_faster"]["tiny"]["transformers-bf16"]
    assert set(ratios) == {"first_token_ms", "decode_ms_per_token", "cold_start_ms"}
    assert result["absent"] == {
        "openvino-int4": "optimum-cli export openvino failed: out of memory",
        "llama.cpp-Q4_0": "not installed: python -m benchmarks.peers.install llama.cpp",
    }
    assert result["facts"]["hardware"]["cpu"]
    assert str(home) not in out.read_text()
    printed = json.loads(capsys.readouterr().out)
    assert printed["tiny"]["transformers-bf16"]["first_token_ms"] > 0


def test_recipes_beside_transformers(
    tiny_checkpoint: tuple[Path, Any],
    tiny_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("QWINK_HOME", str(tiny_home))
    checkpoint, out = str(tiny_checkpoint[0]), tmp_path / "speed.json"
    arguments = [checkpoint, f"--artifact=tiny={checkpoint}", f"--out={out}"]
    speed.main([*arguments, "--threads=1", "--rounds=1", "--tokens=2"])
    result = json.loads(out.read_text())
    assert set(result["contenders"]) == {"tiny", "transformers-bfloat16"}
    ratios = result["times_faster_than"]["transformers-bfloat16"]["tiny"]
    assert set(ratios) == {"first_token_ms", "decode_ms_per_token"}
    assert "196 visual tokens" in result["work"]
    assert {"qwink", "onnxruntime", "torch", "transformers"} <= set(result["facts"]["versions"])


def test_a_peer_that_cannot_load_is_absent_and_ours_must_not_be(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "peers.json"
    with pytest.raises(SystemExit, match="ModelNotFound"):
        compare.main([f"--artifact=gone={tmp_path / 'gone'}", f"--home={home}", f"--out={out}"])
    assert not out.exists()


@pytest.mark.parametrize(
    ("adapter", "python", "words"),
    [
        ("nobody", sys.executable, r"exit status 1: .*No module named qwink\.lab\.peers\.nobody"),
        ("qwink_peer", "/nowhere/python", "No such file"),
        ("qwink_peer", sys.executable, "TypeError: .*unexpected keyword argument 'colour'"),
    ],
)
def test_a_process_that_fails_says_why(adapter: str, python: str, words: str) -> None:
    contender = Contender("x", "x", adapter, python, {"model": "nano", "colour": 1})
    with pytest.raises(PeerFailed, match=f"x: .*{words}"), Worker(contender, 1) as worker:
        worker.ask(picture(0, 64), "?", 1)


def test_a_waiting_process_is_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("QWINK_HOME", str(tmp_path))
    contender = Contender("nano", "qwink", "qwink_peer", sys.executable, {"model": "nano"})
    with Worker(contender, 1) as worker:
        first = worker.ask(picture(0, 224), "What does it say?", 1)
        worker.pause()
        status = Path(f"/proc/{worker.pid}/status").read_text()
        worker.resume()
        again = worker.ask(picture(1, 224), "What does it say?", 1)
    assert "State:\tT (stopped)" in status
    assert first["num_prompt_tokens"] == again["num_prompt_tokens"]
    assert "decode_ms_per_token" not in first  # needs two tokens


class _Terse:
    def versions(self) -> dict[str, str]:
        return {}

    def answer(self, picture: bytes, question: str, num_tokens: int) -> PeerAnswer:
        return PeerAnswer(1.0, 2.0, num_tokens - 1, 10)


def test_a_shorter_answer_is_not_compared() -> None:
    request = {"picture": "", "question": "?", "num_tokens": 4}
    with pytest.raises(ValueError, match="3 tokens instead of 4; ask for fewer"):
        _reply(_Terse(), request)


def test_prompts_of_different_length_are_not_compared() -> None:
    table = Table(prompts={"a": (213, 196), "b": (213, None)})
    assert compare.same_work(table) == {"num_prompt_tokens": 213, "num_visual_tokens": 196}
    table.prompts["c"] = (214, 196)
    with pytest.raises(SystemExit, match="differ in length"):
        compare.same_work(table)


def test_settings_have_names_of_their_own_and_one_best_each() -> None:
    assert len({setting.name for setting in SETTINGS}) == len(SETTINGS)
    for peer in install.PEERS:
        assert any(setting.best for setting in SETTINGS if setting.peer == peer)
