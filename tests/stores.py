"""A real Redis for tests, and the images that are kept in it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import redis

from qwink.errors import OptionError
from qwink.lab.store.server import RedisServer
from qwink.types import EncodedImage, Grid

PATIENCE_S = 30.0


def start(folder: Path, options: Sequence[str] = (), tls: bool = False) -> RedisServer:
    """A server; the test is skipped without the program, or fails where it is required."""
    try:
        return RedisServer(folder, options, tls)
    except OptionError as error:
        if os.environ.get("QWINK_TEST_REDIS") == "required":
            pytest.fail(str(error))
        pytest.skip(str(error))


def until(holds: Callable[[], object]) -> None:
    """Wait until something holds. Fails if it does not within a long time."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.005)


def encoded(key: str = "a", seed: int = 0, tokens: int = 6, width: int = 8) -> EncodedImage:
    """An encoded image of random numbers."""
    rng = np.random.default_rng(seed)
    embeds = rng.normal(size=(tokens, width)).astype(np.float16)
    deepstack = rng.normal(size=(3, tokens, width)).astype(np.float16)
    return EncodedImage(embeds, deepstack, Grid(1, 2 * tokens, 2), key)


def same(found: EncodedImage | None, image: EncodedImage) -> bool:
    """Whether both are equal to the last bit."""
    return (
        found is not None
        and (found.key, found.grid) == (image.key, image.grid)
        and found.embeds.tobytes() == image.embeds.tobytes()
        and found.deepstack.tobytes() == image.deepstack.tobytes()
    )


def client(server: RedisServer, password: str | None = None) -> redis.Redis:
    """A client of its own, to look at what is stored."""
    return redis.Redis(port=server.port, password=password)
