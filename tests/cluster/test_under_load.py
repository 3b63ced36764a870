"""A cluster under load: a replica is killed, all are replaced, the server stops. Takes minutes."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from qwink.lab.cluster import replica_processes
from tests.cluster.load import load
from tests.page.visit import FLAGS, Visit, chromium
from tests.server.process import Serve, Server, ask, image, png, starter, user

pytestmark = pytest.mark.skipif(
    os.environ.get("QWINK_TEST_RAY") is None, reason="takes minutes; make test-ray runs it"
)
KEY = "a-key"


@pytest.fixture(scope="module")
def serve(
    endless_checkpoint: Path, tiny_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Serve]:
    yield from starter(endless_checkpoint, tiny_home, tmp_path_factory.mktemp("ray"))


@pytest.fixture(scope="module")
def cluster(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Server:
    server = serve("--ray", "local", "--replicas", 2, "--files-dir", tmp_path_factory.mktemp("f"))
    server.wait_until(lambda: ready(server))
    return server


def ready(server: Server) -> bool:
    return any("ready with" in line for line in server.printed)


def test_a_client_that_leaves_stops_the_engine(cluster: Server) -> None:
    with cluster.client() as client:
        for stream in (True, False):
            connection = cluster.send(
                messages=[user(image(5), "Describe it in detail.")],
                stream=stream,
                max_tokens=8000,
            )
            cluster.wait_until(lambda: cluster.metric("qwink_running{") == 1)
            connection.close()
            cluster.wait_until(lambda: cluster.metric("qwink_active{") == 0)
            assert cluster.metric("qwink_running{") == 0
        assert ask(client, user("Hi"), model="tiny").choices


def test_the_page_asks_about_a_picture(cluster: Server) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        visit = Visit(browser.new_page(), cluster.address).open()
        visit.pick(png(1))
        visit.ask("What is it?")
        visit.page.get_by_role("button", name="Stop").click()
        visit.check()
        browser.close()


def test_batches_run_on_all_replicas(cluster: Server) -> None:
    def line(number: int) -> str:
        body = {
            "model": "tiny",
            "messages": [user(image(900 + number), "What is it?")],
            "max_tokens": 4,
        }
        return json.dumps(
            {
                "custom_id": str(number),
                "method": "POST",
                "url": "/v1/chat/completions",
                "body": body,
            }
        )

    def encoded() -> dict[str, float]:
        lines = cluster.http.get(f"{cluster.address}/metrics").text.splitlines()
        return {
            line.split('replica="')[1].split('"')[0]: float(line.split()[-1])
            for line in lines
            if line.startswith("qwink_stage_seconds_count") and 'stage="encode"' in line
        }

    before = encoded()
    with cluster.client() as client:
        content = "\n".join(map(line, range(16))).encode()
        file = client.files.create(file=("in.jsonl", content), purpose="batch")
        batch = client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        cluster.wait_until(lambda: client.batches.retrieve(batch.id).status == "completed")
        done = client.batches.retrieve(batch.id)
        assert done.output_file_id is not None
        rows = client.files.content(done.output_file_id).text.splitlines()
    assert sorted(int(json.loads(row)["custom_id"]) for row in rows) == list(range(16))
    after = encoded()
    assert all(after[name] > before.get(name, 0) for name in after)
    assert len(after) == 2


def test_a_replica_that_dies_is_replaced(cluster: Server) -> None:
    with load(cluster) as asked:
        asked.wait_for(8)
        victims = replica_processes(cluster.process.pid)
        assert len(victims) == 2
        os.kill(victims[0], signal.SIGKILL)
        asked.wait_for(20)
    bad = {outcome for outcome in asked.outcomes if outcome != "ok"}
    assert bad <= {"503 replica_lost", "503 not_ready", "stream replica_lost"}
    assert None not in asked.retry_after
    cluster.wait_until(lambda: len(replica_processes(cluster.process.pid)) == 2)
    cluster.wait_until(lambda: cluster.metric("qwink_engine_up") == 2)


def test_no_request_fails_while_all_replicas_are_replaced(cluster: Server, serve: Serve) -> None:
    address = re.search(r"--ray (\S+)", "".join(cluster.printed))
    assert address is not None
    before = set(replica_processes(cluster.process.pid))
    with load(cluster) as asked:
        asked.wait_for(4)
        changed = ("--replicas", 2, "--context", 4096)
        second = serve("--ray", address[1], *changed, RAY_AUTH_MODE="token")
        second.wait_until(lambda: ready(second))
        asked.wait_for(8)
    assert set(asked.outcomes) == {"ok"}
    cluster.wait_until(lambda: len(replica_processes(cluster.process.pid)) == 2)
    assert not before & set(replica_processes(cluster.process.pid))
    second.process.kill()


def test_it_drains_at_the_end(cluster: Server) -> None:
    """Runs last: the answer under way is completed, new ones are refused."""
    connection = cluster.send(messages=[user("Count to a hundred.")], max_tokens=200, stream=True)
    cluster.wait_until(lambda: cluster.metric("qwink_running{") == 1)
    os.kill(cluster.process.pid, signal.SIGTERM)
    cluster.wait_until(lambda: any("stopping" in line for line in cluster.printed))
    refused = cluster.http.post(f"{cluster.address}/v1/chat/completions", json={})
    assert refused.status_code == 503
    assert refused.json()["error"]["code"] == "shutting_down"
    assert refused.headers["retry-after"]
    received = b""
    while chunk := connection.recv(65536):
        received += chunk
        if b"[DONE]" in received:
            break
    assert b"[DONE]" in received
    assert b'"error"' not in received
    connection.close()
    assert cluster.wait() == 0


def test_keys_and_an_unknown_model(serve: Serve) -> None:
    server = serve("--ray", "local", "--replicas", 1, QWINK_API_KEYS=KEY)
    server.wait_until(lambda: ready(server))
    with server.client(api_key=KEY) as client:
        assert ask(client, user("Hi"), model="tiny").choices
    with server.client() as client, pytest.raises(openai.AuthenticationError):
        ask(client, user("Hi"), model="tiny")
    assert httpx.get(f"{server.address}/", trust_env=False).status_code == 200
    assert server.stop() == 0
    broken = serve("--ray", "local", "--model", "no/such-model")
    assert broken.wait() == 1
    assert "no/such-model" in broken.log
