"""The threads and the memory of replicas that share machines; how many replicas."""

from __future__ import annotations

import pytest

from qwink.cluster.options import ReplicaCount
from qwink.cluster.shares import share
from qwink.errors import OptionError
from qwink.server.options import ServerOptions


@pytest.mark.parametrize(
    ("num_replicas", "num_machines", "threads", "memory_mb"),
    [(1, 1, 8, 4096), (2, 1, 4, 4000), (4, 1, 2, 2000), (4, 3, 4, 4000), (20, 1, 1, 400)],
)
def test_replicas_share_a_machine(
    num_replicas: int, num_machines: int, threads: int, memory_mb: int
) -> None:
    found = share(ServerOptions(), num_replicas, num_machines, 8, 32_000)
    assert (found.threads, found.memory_mb) == (threads, memory_mb)


def test_what_is_given_stays() -> None:
    found = share(ServerOptions(threads=3, memory_mb=5), 4, 1, 8, 32_000)
    assert (found.threads, found.memory_mb) == (3, 5)


def test_counts() -> None:
    assert ReplicaCount.parse("3") == ReplicaCount(3, 3)
    assert ReplicaCount.parse("1-4") == ReplicaCount(1, 4)


@pytest.mark.parametrize("text", ["", "0", "4-1", "0-2", "-1", "1-", "two", "1-2-3", "1 - 2"])
def test_other_counts_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match="replicas is"):
        ReplicaCount.parse(text)
