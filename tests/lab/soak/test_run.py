"""A soak of some seconds: a real server, killed and restarted under mixed load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qwink.lab.soak.run import Plan, soak
from qwink.lab.soak.verdict import table


def test_a_short_soak(
    tiny_checkpoint: tuple[Path, Any], tiny_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QWINK_HOME", str(tiny_home))
    plan = Plan(str(tiny_checkpoint[0]), seconds=6, num_questions=12, threads=1)
    found = soak(plan)
    assert not found.failures, table(found)
    assert [life.end for life in found.lives] == ["SIGKILL", "SIGTERM", "SIGTERM"]
    assert found.right >= 3 * plan.num_questions
    assert (found.wrong, found.server_errors) == (0, 0)
    assert found.requests == found.right + found.interrupted
