"""Fixtures: `qwink serve --ray local` with two replicas of nano, and a handle on its parts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.conftest import endless_checkpoint
from tests.server.process import Server, starter

__all__ = ["cluster", "endless_checkpoint"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two replicas on a Ray of their own."""
    folder = tmp_path_factory.mktemp("ray")
    servers = starter(Path("nano"), folder / "home", folder)
    server = next(servers)("--ray", "local", "--replicas", 2, RAY_ADDRESS="")
    server.model = "nano"
    server.wait_until(lambda: any("ready with" in line for line in server.printed))
    yield server
    assert server.stop() == 0, server.log
    next(servers, None)
