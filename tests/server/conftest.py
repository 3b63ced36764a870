"""Fixtures: real server processes that serve the small random checkpoint."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from qwink.inputs.tokenizer import Tokenizer
from tests.server.process import Serve, Server, starter


@pytest.fixture(scope="session")
def endless_checkpoint(
    tiny_checkpoint: tuple[Path, Any], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The small checkpoint with an end token that is never sampled, so answers reach max_tokens.

    With the usual end token, about one token in 300 would end an answer.
    """
    folder = tmp_path_factory.mktemp("endless") / tiny_checkpoint[0].name
    shutil.copytree(tiny_checkpoint[0], folder)
    never = Tokenizer.load(folder).token_id("<|vision_pad|>")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": never}))
    return folder


@pytest.fixture
def serve(endless_checkpoint: Path, tiny_home: Path, tmp_path: Path) -> Iterator[Serve]:
    """`serve(*flags, **environment)` starts a server; it is killed at the end of the test."""
    yield from starter(endless_checkpoint, tiny_home, tmp_path)


@pytest.fixture(scope="session", params=["onnx", "torch"])
def server(
    request: pytest.FixtureRequest,
    tiny_checkpoint: tuple[Path, Any],
    tiny_home: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    """One server per engine, shared by all tests that do not change its state."""
    servers = starter(tiny_checkpoint[0], tiny_home, tmp_path_factory.mktemp("server"))
    serve = next(servers)
    flags = ("--max-body-mb", 1, "--body-timeout", 2, "--memory-mb", 16, "--warm", "Be brief.")
    yield serve(*flags, "--engine", request.param).wait_ready()
    next(servers, None)


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with server.client() as client:
        yield client


@pytest.fixture(scope="session")
def nano_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with nano, whose answers are sensible."""
    folder = tmp_path_factory.mktemp("nano")
    servers = starter(Path("nano"), folder / "home", folder)
    yield next(servers)().wait_ready()
    next(servers, None)
