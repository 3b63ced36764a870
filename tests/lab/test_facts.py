"""Facts of this machine, compared with those from other sources."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import qwink
from qwink.lab import facts
from qwink.lab.facts import collect, peak_rss_bytes

ROOT = Path(__file__).parents[2]


def test_facts_are_json() -> None:
    found = collect(accelerator="a GPU")
    document = json.loads(json.dumps(asdict(found)))
    hardware = document["hardware"]
    assert hardware["accelerator"] == "a GPU"
    assert hardware["system"] == platform.platform()
    assert 1 <= hardware["num_cores"] <= hardware["num_cpus"] <= (os.cpu_count() or 1)
    assert hardware["memory_bytes"] > 2**28
    assert hardware["cpu"]
    assert document["versions"] == {
        "qwink": qwink.__version__,
        "onnxruntime": onnxruntime.__version__,
        "numpy": np.__version__,
    }


def test_nothing_tells_whose_machine_it_is() -> None:
    text = json.dumps(asdict(collect()))
    assert platform.node() not in text
    assert str(Path.home()) not in text


def test_packages_that_are_not_here_are_left_out() -> None:
    assert set(collect(("numpy", "no-such-package")).versions) == {"numpy"}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout")
def test_commit() -> None:
    command = ["git", "rev-parse", "HEAD"]
    head = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert collect().commit == head.strip()


@pytest.mark.skipif(not shutil.which("git"), reason="no git")
def test_no_commit_for_a_copy_within_another_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    copy = tmp_path / "facts.py"
    copy.touch()
    monkeypatch.setattr(facts, "__file__", str(copy))
    assert (collect().commit, collect().modified) == (None, False)


def test_peak_memory_knows_what_was_touched() -> None:
    before = peak_rss_bytes()
    block = np.ones(8_000_000)
    assert peak_rss_bytes() >= before > 0
    assert peak_rss_bytes() > block.nbytes
