"""Comparisons for each kind of processor: real processes, and what cannot be measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qwink.lab.peers import compare, processors
from qwink.lab.peers.cap import CannotHide, Cap
from qwink.lab.peers.contenders import SETTINGS, contender, installed, ours
from qwink.lab.peers.worker import PeerFailed, Worker
from qwink.lab.record import write
from qwink.native import processor

OLD = frozenset({"avx2", "fma", "f16c"})
NOTHING = Cap("avx2", {})


@pytest.fixture
def old_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "flags", lambda: OLD)


@pytest.mark.usefixtures("old_processor")
def test_kinds_are_measured_or_named_with_the_reason(
    tiny_checkpoint: tuple[Path, Any],
    tiny_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("QWINK_HOME", str(tiny_home))
    out = tmp_path / "processors.json"
    compare.main(
        [
            *(f"--artifact=tiny={tiny_checkpoint[0]}", f"--home={tmp_path}", f"--out={out}"),
            *("--cpu=all", "--only=llama.cpp-Q4_0", "--threads=1", "--rounds=1"),
            *("--cold-starts=0", "--tokens=2"),
        ]
    )
    found = json.loads(out.read_text())["processors"]
    assert found["avxvnni"] == {"not_measured": "this processor lacks avx_vnni"}
    assert found["avx512"]["not_measured"].startswith("this processor lacks avx512f")
    assert found["avx2"]["contenders"]["tiny"]["first_token_ms"]["count"] == 1
    assert found["avx2"]["facts"]["hardware"]["cpu"]
    assert found["avx2"]["absent"] == {
        "llama.cpp-Q4_0": "not installed: python -m benchmarks.peers.install llama.cpp"
    }
    printed = json.loads(capsys.readouterr().out)
    missing = {cpu: found[cpu]["not_measured"] for cpu in ("avxvnni", "avx512")}
    assert printed == {"avx2": {"tiny": {}}} | missing


def test_what_another_machine_measured_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "processors.json"
    measured: dict[str, Any] = {"contenders": {"fast": {}}}
    missing: dict[str, Any] = {"not_measured": "lacks it"}
    first = processors.merged(path, {"avx2": missing, "avxvnni": measured})
    assert first.kind == "processors"
    write(path, first.document())
    again = {"avx2": measured, "avxvnni": missing, "avx512": missing}
    assert processors.merged(path, again).measured["processors"] == {
        "avx2": measured,
        "avxvnni": measured,
        "avx512": missing,
    }


def test_what_cannot_be_hidden_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(cpu: str, folder: Path) -> Cap:
        raise CannotHide("no faults here")

    monkeypatch.setattr(processor, "flags", lambda: OLD | {"avx_vnni"})
    monkeypatch.setattr(processors, "cap", refuse)
    found = processors.each(["avx2"], lambda cap: pytest.fail(f"measured {cap}"))
    assert found["avx2"]["not_measured"] == (
        "what this processor has beyond avx2 stays in use: no faults here"
    )


def test_a_compiled_peer_needs_a_build_for_the_kind(tmp_path: Path) -> None:
    home = tmp_path / "peers"
    for peer in ("llama.cpp", "openvino"):
        (home / peer).mkdir(parents=True)
        (home / peer / "peer.json").write_text('{"python": "/x/python"}')
    assert installed("openvino", home, NOTHING)[0] == "/x/python"
    assert installed("llama.cpp", home)[0] == "/x/python"
    assert installed("llama.cpp", home, NOTHING) == (
        None,
        "not built for avx2: python -m benchmarks.peers.install llama.cpp --cpu avx2",
    )
    build = home / "llama.cpp" / "builds" / "avx2"
    build.mkdir(parents=True)
    assert installed("llama.cpp", home, NOTHING)[0] == "/x/python"
    settings = {setting.peer: setting for setting in SETTINGS}
    made = contender(settings["llama.cpp"], home, "/x/python", cap=Cap("avx2", {"A": "1"}))
    assert (made.packages, made.variables) == (build.resolve(), {"A": "1"})
    made = contender(settings["openvino"], home, "/x/python", cap=NOTHING)
    assert made.packages is None
    assert contender(settings["llama.cpp"], home, "/x/python").packages is None


def test_a_process_gets_the_variables_and_the_build(tmp_path: Path) -> None:
    """A package in the build that says in which environment it was imported."""
    (tmp_path / "llama_cpp.py").write_text("import os\nraise RuntimeError(os.environ['CAPPED'])\n")
    (one,) = ours(["x=y"], Cap("avx2", {"CAPPED": "as-avx2"}))
    assert one.variables == {"CAPPED": "as-avx2"}
    probe = type(one)(
        *("x", "x", "llama_peer", one.python, {}), variables=one.variables, packages=tmp_path
    )
    with pytest.raises(PeerFailed, match="as-avx2"), Worker(probe, 1) as worker:
        worker.wait()
