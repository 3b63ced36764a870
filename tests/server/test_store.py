"""Servers that share a Redis: all find images and uploads, and its faults harm no answer."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest

from qwink.lab.store.server import RedisServer
from tests import stores
from tests.server.process import Server, ask, image, png, starter, user

PASSWORD = "pa55word"
KEYS = ("key-one", "key-two")


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    options = ("--requirepass", PASSWORD)
    with stores.start(tmp_path_factory.mktemp("redis"), options) as server:
        yield server


@pytest.fixture(scope="module")
def pair(
    redis_server: RedisServer,
    endless_checkpoint: Path,
    tiny_home: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Server, Server]]:
    """Two servers, as on two machines: each has memory of its own and no disk cache."""
    folder = tmp_path_factory.mktemp("pair")
    keys, secret = folder / "keys", folder / "secret"
    keys.write_text("\n".join(KEYS))
    secret.write_text("a secret\n")
    servers = starter(endless_checkpoint, tiny_home, folder)
    serve = next(servers)
    flags = ("--api-key-file", keys, "--store-ttl", 600, "--store-secret-file", secret)
    url = redis_server.url.replace("://", f"://:{PASSWORD}@")
    one = serve(*flags, "--store", url)
    two = serve(*flags, QWINK_STORE=url)
    yield one.wait_ready(), two.wait_ready()
    next(servers, None)


def outcome(server: Server, side: str, what: str) -> float:
    return server.metric(f'qwink_store_{side}_total{{outcome="{what}"}}')


def answer(server: Server, *parts: Any, key: str = KEYS[0]) -> Any:
    with server.client(api_key=key) as client:
        return ask(client, user(*parts, "What is this?"))


def text(answered: Any) -> str:
    found: str = answered.choices[0].message.content
    return found


def origin(answered: Any) -> str:
    """Where the encoded image came from."""
    found: str = answered.timings["origins"]["encode"]
    return found


def shares(pair: tuple[Server, Server], number: int) -> bool:
    """Whether the second server found what the first had encoded, before it was encoded again.

    On a busy machine the tiny model can be the first.
    """
    written = outcome(pair[0], "writes", "written")
    first = answer(pair[0], image(number))
    assert origin(first) == "computed"
    deadline = time.monotonic() + 1  # a store that fails writes nothing
    while outcome(pair[0], "writes", "written") == written and time.monotonic() < deadline:
        time.sleep(0.02)
    second = answer(pair[1], image(number))
    assert text(second) == text(first)
    return origin(second) == "reused"


def test_a_second_server_need_not_encode(pair: tuple[Server, Server]) -> None:
    two = pair[1]
    numbers = iter(range(1000, 2000))
    stores.until(lambda: shares(pair, next(numbers)))
    assert outcome(two, "reads", "hit") >= 1
    assert two.metric('qwink_store_bytes_total{side="read"}') > 0
    assert two.metric("qwink_store_skipped") == 0


def is_listed(server: Server, sent: dict[str, Any], headers: dict[str, str]) -> bool:
    """Whether the server finds an upload within the time for which it waits for the store."""
    found = server.http.get(f"{server.address}/v1/images?id={sent['id']}", headers=headers)
    data: list[Any] = found.json()["data"]
    assert data in ([], [sent])
    return bool(data)


def test_an_upload_is_found_with_the_key_that_put_it(pair: tuple[Server, Server]) -> None:
    one, two = pair
    first, other = ({"Authorization": f"Bearer {key}"} for key in KEYS)
    written = outcome(one, "writes", "written")
    sent = one.http.post(f"{one.address}/v1/images", content=png(2), headers=first).json()
    stores.until(lambda: outcome(one, "writes", "written") > written)
    for server in pair:
        there = f"{server.address}/v1/images"
        assert server.http.head(f"{there}/{sent['id']}", headers=other).status_code == 404
        assert server.http.get(f"{there}?id={sent['id']}", headers=other).json()["data"] == []
        stores.until(partial(is_listed, server, sent, first))
        assert server.http.head(f"{there}/{sent['id']}", headers=first).status_code == 200
    by_id = {"type": "image_url", "image_url": {"url": sent["id"]}}
    assert text(answer(two, by_id)) == text(answer(one, image(2)))
    with pytest.raises(Exception, match="not stored here"):
        answer(two, by_id, key=KEYS[1])


def test_an_upload_that_is_only_in_the_store_is_fetched_by_a_request(
    pair: tuple[Server, Server],
) -> None:
    one, two = pair
    written = outcome(one, "writes", "written")
    headers = {"Authorization": f"Bearer {KEYS[0]}"}
    sent = one.http.post(f"{one.address}/v1/images", content=png(3), headers=headers).json()
    stores.until(lambda: outcome(one, "writes", "written") > written)
    by_id = {"type": "image_url", "image_url": {"url": sent["id"]}}

    def found() -> bool:
        try:
            return text(answer(two, by_id)) == text(answer(two, image(3)))
        except openai.BadRequestError:  # on a busy machine the store may be skipped
            return False

    stores.until(found)


def test_what_redis_holds(pair: tuple[Server, Server], redis_server: RedisServer) -> None:
    """Names of our own, with a time to live, and nothing that can be read."""
    answer(pair[0], image(4))
    looking = stores.client(redis_server, PASSWORD)
    stores.until(lambda: outcome(pair[0], "writes", "written"))
    found = looking.keys()
    assert isinstance(found, list)
    for name in found:
        assert isinstance(name, bytes)
        assert re.fullmatch(rb"qwink:1:(image|upload):[0-9a-f]{64}", name)
        assert 0 < looking.ttl(name) <= 600
        content = looking.get(name)
        assert isinstance(content, bytes)
        assert b"QWINK" not in content
        assert b"PNG" not in content


def test_faults_of_redis_under_load(pair: tuple[Server, Server], redis_server: RedisServer) -> None:
    """Each picture is asked about at both servers, while Redis is stopped, killed and restarted."""

    def both(number: int) -> tuple[str, str]:
        return text(answer(pair[0], image(number))), text(answer(pair[1], image(number)))

    def disturb() -> None:
        for _ in range(2):
            redis_server.pause()
            time.sleep(0.3)
            redis_server.resume()
            time.sleep(0.1)
            redis_server.kill()
            time.sleep(0.3)
            redis_server.start()
            time.sleep(0.1)

    with ThreadPoolExecutor(5) as pool:
        disturbing = pool.submit(disturb)
        answers = []
        number = 100
        while not disturbing.done():
            answers += list(pool.map(both, range(number, number + 8)))
            number += 8
        disturbing.result()
    assert len(answers) >= 8
    assert all(one == two for one, two in answers)
    for server in pair:
        failed = sum(outcome(server, "reads", what) for what in ("error", "timeout", "late"))
        assert failed > 0
    # Afterwards it is used again.
    numbers = iter(range(2000, 3000))
    stores.until(lambda: shares(pair, next(numbers)))


def test_nothing_shows_the_password(pair: tuple[Server, Server], tmp_path: Path) -> None:
    for server in pair:
        assert PASSWORD not in server.log + "".join(server.printed)
        assert any("shared store: redis://127.0.0.1" in line for line in server.printed)
        for line in server.log.splitlines():
            json.loads(line)
    command = [sys.executable, "-m", "qwink", "serve", "--print-config"]
    command += ["--store", f"redis://ann:{PASSWORD}@h:1/2"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert 'store = "redis://h:1/2"' in shown
    assert PASSWORD not in shown
