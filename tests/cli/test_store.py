"""`--store`: one command encodes a picture, the next one finds it in Redis."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qwink.lab.store.server import RedisServer
from tests import stores
from tests.conftest import RunQwink

SMALL = ("--min-pixels", 1024, "--max-pixels", 8192, "--max-tokens", 4, "--temperature", 0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with stores.start(tmp_path_factory.mktemp("redis")) as server:
        yield server


def ask(qwink: RunQwink, picture: Path, *options: object, **environment: str) -> dict[str, Any]:
    ran = qwink("ask", picture, "-q", "What is this?", "--json", *SMALL, *options, **environment)
    assert ran.code == 0, ran.err
    document: dict[str, Any] = json.loads(ran.out)
    return document | {"err": ran.err}


def test_ask_and_batch_share_images(qwink: RunQwink, picture: Path, server: RedisServer) -> None:
    first = ask(qwink, picture, "--store", server.url, "--store-ttl", 100)
    assert first["timings"]["origins"]["encode"] == "computed"
    looking = stores.client(server)
    assert looking.dbsize() == 1
    assert 0 < looking.ttl(looking.keys()[0]) <= 100
    hits = looking.info("stats")["keyspace_hits"]

    def reused() -> bool:  # the tiny model encodes sooner than a busy machine connects
        second = ask(qwink, picture, QWINK_STORE=server.url)
        assert second["text"] == first["text"]
        return bool(second["timings"]["origins"]["encode"] == "reused")

    stores.until(reused)
    assert looking.info("stats")["keyspace_hits"] > hits
    ran = qwink("batch", picture, "-q", "What is this?", *SMALL, "--store", server.url)
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["answer"] == first["text"]
    assert looking.dbsize() == 1


def test_an_absent_store_is_named_and_harms_nothing(
    qwink: RunQwink, picture: Path, tmp_path: Path
) -> None:
    wanted = ask(qwink, picture)
    found = ask(qwink, picture, "--store", f"unix://user:pass@{tmp_path}/nothing")
    assert found["text"] == wanted["text"]
    assert f"the shared store unix://{tmp_path}/nothing fails" in found["err"]
    assert "pass" not in found["err"].replace("passed", "")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--store", "localhost"), "write redis://HOST:6379"),
        (("--store", "redis://h", "--store-ttl", "0"), "store_ttl"),
        (("--store-ttl", "10"), "needs a --store"),
    ],
)
def test_options_that_cannot_be_honoured(
    qwink: RunQwink, picture: Path, options: tuple[str, ...], told: str
) -> None:
    ran = qwink("ask", picture, *options)
    assert ran.code == 2
    assert told in ran.err
    assert "Traceback" not in ran.err
