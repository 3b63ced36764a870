"""One budget of memory and its parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from qwink.errors import OptionError
from qwink.runtime.memory import Memory, machine_bytes


@pytest.mark.parametrize("total", [1, 7, 1 << 20, 4 << 30])
def test_the_parts_add_up(total: int) -> None:
    memory = Memory.divide(total)
    assert memory.total_bytes == total
    assert memory.kv_bytes >= 3 * max(memory.image_bytes, memory.upload_bytes)


def test_a_budget_of_nothing_is_refused() -> None:
    with pytest.raises(OptionError, match="must be above 0"):
        Memory.divide(0)


def test_the_default_leaves_most_of_the_machine(tmp_path: Path) -> None:
    assert Memory.default().total_bytes <= min(machine_bytes() // 4, 4 << 30)
    limit = tmp_path / "memory.max"
    limit.write_text("1073741824\n")
    assert machine_bytes(limit) == 1 << 30
    limit.write_text("max\n")
    assert machine_bytes(limit) == machine_bytes(tmp_path / "absent") > 1 << 30
