"""The app in front of the replicas, with replicas that do as they are told."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from qwink.cluster.destination import Destination
from qwink.cluster.front import ReplicaLost, Traffic, create_front
from qwink.cluster.replica import Call, Missing, Part, Start
from qwink.server.options import ServerOptions
from tests.server.process import image, png, user

JSON = Start(200, [(b"content-type", b"application/json"), (b"x-request-id", b"theirs")])
STREAM = Start(200, [(b"content-type", b"text/event-stream; charset=utf-8")])
CHAT = {"model": "nano", "messages": [user(image(1), "Hi")]}
Script = list[Part | type[ReplicaLost] | float]


class Scripted:
    """Replicas whose calls follow scripts, one after the other; the last one is repeated.

    A number is a pause in seconds.
    """

    def __init__(self, *scripts: Script, uploads: dict[str, bytes] | None = None) -> None:
        self._scripts, self._uploads = list(scripts), uploads or {}
        self.calls: list[Call] = []
        self.destinations: list[Destination] = []
        self.num_closed = 0

    async def answer(self, call: Call, destination: Destination) -> AsyncGenerator[Part, None]:
        self.calls.append(replace(call))
        self.destinations.append(destination)
        script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
        try:
            for step in script:
                if isinstance(step, float):
                    await asyncio.sleep(step)
                elif isinstance(step, type):
                    raise step("lost")
                else:
                    yield step
        finally:
            self.num_closed += 1

    async def metrics(self) -> dict[str, bytes]:
        return {"one": b"# TYPE x gauge\nx 1.0\n"}

    async def upload(self, key: str, client: str) -> bytes | None:
        return self._uploads.get(key)

    async def answer_everywhere(self, call: Call) -> list[tuple[Start, bytes]]:
        def listed(*ids: str) -> bytes:
            return json.dumps({"data": [{"id": name} for name in ids]}).encode()

        if not self._scripts[0]:
            raise ReplicaLost("none")
        return [(JSON, listed("a")), (JSON, listed("a", "b"))]


Ask = Callable[[httpx.AsyncClient, Traffic], Coroutine[Any, Any, Any]]


def run(replicas: Scripted, ask: Ask, **options: Any) -> Any:
    """The result of `ask` with a client of a front."""

    async def main() -> Any:
        app = create_front(replicas, ServerOptions(**options), num_replicas=2)
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            return await ask(client, app.state.traffic)

    return asyncio.run(main())


def post(replicas: Scripted, path: str = "/v1/chat/completions", **options: Any) -> httpx.Response:
    sent: dict[str, Any] = {"json": CHAT} | options.pop("sent", {})
    response: httpx.Response = run(replicas, lambda c, _: c.post(path, **sent), **options)
    return response


def test_a_request_is_passed_on_as_it_came() -> None:
    replicas = Scripted([None, JSON, b"{}"])
    headers = {"X-Request-ID": "mine", "X-Other": "kept"}
    response = post(replicas, "/v1/chat/completions?a=b", sent={"headers": headers})
    assert response.json() == {}
    assert response.headers.get_list("x-request-id") == ["mine"]
    [call] = replicas.calls
    assert json.loads(call.body) == CHAT
    assert call.scope["query_string"] == b"a=b"
    passed = dict(call.scope["headers"])
    assert passed[b"x-request-id"] == b"mine"
    assert passed[b"x-other"] == b"kept"
    assert passed[b"content-length"] == str(len(call.body)).encode()
    assert replicas.destinations[0].picture == hashlib.sha256(png(1)).hexdigest()


def test_uploads_go_where_questions_about_them_go() -> None:
    key = hashlib.sha256(png(1)).hexdigest()
    for sent in ({"content": png(1)}, {"files": {"file": ("a.png", png(1))}}):
        replicas = Scripted([None, JSON, b"{}"])
        assert post(replicas, "/v1/images", sent={"json": None, **sent}).status_code == 200
        assert replicas.destinations == [Destination(key)]


def test_a_lost_replica_is_replaced_while_nothing_was_sent() -> None:
    replicas = Scripted([None, ReplicaLost], [ReplicaLost], [None, JSON, b"{}"])
    assert post(replicas).status_code == 200
    assert len(replicas.calls) == replicas.num_closed == 3


def test_when_all_are_lost_the_client_may_ask_again() -> None:
    replicas = Scripted([None, ReplicaLost])
    response = post(replicas)
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "replica_lost"
    assert response.headers["retry-after"] == "1"
    assert len(replicas.calls) == 3


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_a_stream_that_had_begun_ends_with_an_error(path: str) -> None:
    replicas = Scripted([None, STREAM, b"data: {}\n\n", ReplicaLost])
    response = post(replicas, path)
    assert response.status_code == 200
    assert len(replicas.calls) == 1
    events = response.text.split("\n\n")
    assert events[0] == "data: {}"
    name, _, data = events[1].rpartition("data: ")
    assert json.loads(data)["error"]["code"] == "replica_lost"
    assert (name == "event: error\n") is path.endswith("responses")


def test_any_other_response_that_had_begun_is_cut() -> None:
    with pytest.raises(AssertionError):  # of httpx: the response is not complete
        post(Scripted([None, JSON, b"{", ReplicaLost]))


def test_a_missing_upload_is_fetched_from_another_replica() -> None:
    part = {"type": "image_url", "image_url": {"url": f"qwink:sha256:{'a' * 64}"}}
    sent = {"json": CHAT | {"messages": [user(part)]}}
    for known in ({"a" * 64: b"content"}, {}):
        replicas = Scripted([None, Missing(("a" * 64,))], [None, JSON, b"{}"], uploads=dict(known))
        assert post(replicas, sent=sent).status_code == 200
        first, second = replicas.calls
        assert first.uploads == {"a" * 64: None}
        assert second.uploads == {"a" * 64: known.get("a" * 64, b"")}


def test_which_pictures_are_stored_is_asked_of_all() -> None:
    found = run(Scripted([None]), lambda client, _: client.get("/v1/images?id=a&id=b"))
    assert [one["id"] for one in found.json()["data"]] == ["a", "b"]
    none = run(Scripted([]), lambda client, _: client.get("/v1/images?id=a"))
    assert none.status_code == 503


def test_what_a_server_refuses_is_refused_before_it_is_passed_on() -> None:
    replicas = Scripted([None, JSON, b"{}"])
    assert post(replicas, api_keys=("k",)).status_code == 401
    large = {"json": None, "content": b"x" * (3 << 20)}
    assert post(replicas, sent=large, max_body_mb=1).status_code == 413
    headers = {"Origin": "https://evil.example", "Host": "localhost"}
    assert post(replicas, sent={"headers": headers}).status_code == 403
    assert replicas.calls == []
    keys = {"headers": {"Authorization": "Bearer k"}}
    assert post(replicas, sent=keys, api_keys=("k",)).status_code == 200


def test_a_client_that_leaves_ends_the_call() -> None:
    replicas = Scripted([None, STREAM, 60.0])

    async def leave(client: httpx.AsyncClient, traffic: Traffic) -> None:
        task = asyncio.create_task(client.post("/v1/chat/completions", json=CHAT))
        while not traffic.num_active or traffic.live_waits:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert traffic.num_active == traffic.num_silent == 0

    run(replicas, leave)
    assert replicas.num_closed == 1


def test_drain_refuses_new_requests_and_ends_old_ones() -> None:
    replicas = Scripted([None, STREAM, b"data: {}\n\n", 60.0])

    async def drain(client: httpx.AsyncClient, traffic: Traffic) -> httpx.Response:
        old = asyncio.create_task(client.post("/v1/chat/completions", json=CHAT))
        while not traffic.num_active:
            await asyncio.sleep(0.01)
        traffic.drain()
        new = await client.post("/v1/chat/completions", json=CHAT)
        assert new.status_code == 503
        assert new.json()["error"]["code"] == "shutting_down"
        assert traffic.num_active == 1
        traffic.end()
        return await old

    old = run(replicas, drain)
    assert '"shutting_down"' in old.text
    assert old.text.endswith("data: [DONE]\n\n")


def test_metrics_and_health() -> None:
    replicas = Scripted([None])
    page = run(replicas, lambda client, _: client.get("/metrics")).text
    assert 'x{replica="one"} 1.0' in page
    assert run(replicas, lambda client, _: client.get("/health")).json() == {"status": "ok"}


def test_files_are_kept_here_and_batches_run_on_the_replicas(tmp_path: Path) -> None:
    replicas = Scripted([None, JSON, b'{"id": "x"}'])
    line = {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": CHAT}

    async def batch(client: httpx.AsyncClient, _: Traffic) -> str:
        form: dict[str, Any] = {
            "files": {"file": ("in.jsonl", json.dumps(line))},
            "data": {"purpose": "batch"},
        }
        file = (await client.post("/v1/files", **form)).json()
        fields = {"input_file_id": file["id"], "completion_window": "24h", "endpoint": line["url"]}
        made = (await client.post("/v1/batches", json=fields)).json()
        while made["status"] != "completed":
            await asyncio.sleep(0.02)
            made = (await client.get(f"/v1/batches/{made['id']}")).json()
        return (await client.get(f"/v1/files/{made['output_file_id']}/content")).text

    row = json.loads(run(replicas, batch, files_dir=tmp_path))
    assert row["response"]["body"] == {"id": "x"}
    [call] = replicas.calls
    assert call.marks["qwink.background"] > 0
    assert replicas.destinations[0].picture == hashlib.sha256(png(1)).hexdigest()
