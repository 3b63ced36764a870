"""Counting the cores of simulated machines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qwink.engine import threads
from qwink.engine.threads import physical_cores


def make_cpus(folder: Path, siblings: list[str]) -> Path:
    for cpu, value in enumerate(siblings):
        topology = folder / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(value + "\n")
    return folder


@pytest.fixture
def allow(monkeypatch: pytest.MonkeyPatch) -> object:
    """`allow(cpus)` sets the CPUs that the process may use, without a quota."""
    monkeypatch.setattr(threads, "_quota", lambda: 1 << 16)

    def set_allowed(*cpus: int) -> None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(cpus), raising=False)

    return set_allowed


@pytest.mark.parametrize(
    ("siblings", "allowed", "cores"),
    [
        (["0", "1"], (0, 1), 2),
        (["0-1", "0-1"], (0, 1), 1),
        (["0,4", "1,5", "2,6", "3,7"] * 2, range(8), 4),
        (["0,4", "1,5", "2,6", "3,7"] * 2, (0, 4, 1), 2),
        ([], (0, 1, 2), 3),  # the topology is not known
    ],
)
def test_one_thread_for_each_core(
    tmp_path: Path, allow: object, siblings: list[str], allowed: tuple[int, ...], cores: int
) -> None:
    assert callable(allow)
    allow(*allowed)
    assert physical_cores(make_cpus(tmp_path, siblings)) == cores


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("200000 100000\n", 2), ("150000 100000", 2), ("1000 100000", 1), ("max 100000", 1 << 16)],
)
def test_quota(tmp_path: Path, text: str, cpus: int) -> None:
    path = tmp_path / "cpu.max"
    path.write_text(text)
    assert threads._quota(path) == cpus
    assert threads._quota(tmp_path / "absent") == 1 << 16


def test_quota_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)), raising=False)
    monkeypatch.setattr(threads, "_quota", lambda: 3)
    assert physical_cores(tmp_path) == 3


def test_systems_without_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    for count, cores in ((8, 4), (1, 1), (None, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda count=count: count)
        assert physical_cores() == cores


def test_this_machine() -> None:
    assert 1 <= physical_cores() <= (os.cpu_count() or 1)
