"""Batches in the background: live requests first, expiry, what cannot be kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse

from qwink.server.auth import CLIENT
from qwink.server.background import BACKGROUND
from qwink.server.failures import Failure
from qwink.server.job_runner import JobRunner
from qwink.server.job_store import JobStore, StoredBatch
from qwink.server.options import ServerOptions


class Service:
    """What the runner asks of a service."""

    loaded = alive = True
    draining = live_waits = False
    options = ServerOptions(max_running=2)


class App:
    """Answers at once, or once `gate` is open; notes the bodies that came."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []
        self.clients: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.statuses: list[int] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert scope[BACKGROUND] > 0
        self.clients.append(scope[CLIENT])
        message = await receive()
        self.bodies.append(json.loads(message["body"]))
        await self.gate.wait()
        status = self.statuses.pop() if self.statuses else 200
        await JSONResponse({"ok": True}, status)(scope, receive, send)


def run(
    folder: Path, test: Callable[[JobRunner, Service, App, list[float]], Awaitable[None]]
) -> None:
    async def main() -> None:
        service, app, now = Service(), App(), [1000.0]
        runner = JobRunner(app, service, folder, lambda: now[0])
        runner.start()
        try:
            async with asyncio.timeout(60):
                await test(runner, service, app, now)
        finally:
            await runner.close()

    asyncio.run(main())


def add(runner: JobRunner, number: int, owner: str = "", window_s: int = 60) -> str:
    lines = [
        {"custom_id": str(n), "url": "/v1/responses", "body": {"owner": owner, "n": n}}
        for n in range(number)
    ]
    content = "\n".join(map(json.dumps, lines)).encode()
    store = runner.store()
    file = store.add_file(owner, "batch", "in.jsonl", content)
    batch = store.add_batch(owner, "/v1/responses", file.id, "1m", window_s, None, None)
    runner.wake()
    return batch.id


async def until(runner: JobRunner, batch_id: str, status: str) -> StoredBatch:
    while (batch := runner.store().batch(batch_id)).status != status:
        await asyncio.sleep(0.01)
    return batch


def output(store: JobStore, file_id: str | None) -> list[dict[str, Any]]:
    assert file_id is not None
    return [json.loads(text) for text in store.path(file_id).read_text().splitlines()]


def test_nothing_starts_while_a_live_request_waits(tmp_path: Path) -> None:
    async def test(runner: JobRunner, service: Service, app: App, _: list[float]) -> None:
        service.live_waits = True
        batch = add(runner, 3)
        await until(runner, batch, "in_progress")
        await asyncio.sleep(0.3)
        assert app.bodies == []
        service.live_waits = False
        await until(runner, batch, "completed")
        assert len(app.bodies) == 3

    run(tmp_path, test)


def test_no_more_at_once_than_the_engine_runs_and_one(tmp_path: Path) -> None:
    async def test(runner: JobRunner, _: Service, app: App, __: list[float]) -> None:
        app.gate.clear()
        batch = add(runner, 9)
        while len(app.bodies) < 3:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        assert len(app.bodies) == 3
        app.gate.set()
        await until(runner, batch, "completed")

    run(tmp_path, test)


def test_owners_take_turns(tmp_path: Path) -> None:
    async def test(runner: JobRunner, _: Service, app: App, __: list[float]) -> None:
        large, small = add(runner, 40, "large"), add(runner, 2, "small")
        await until(runner, small, "completed")
        assert runner.store().batch(large).completed < 40
        await until(runner, large, "completed")
        assert set(app.clients) == {"large", "small"}

    run(tmp_path, test)


def test_an_expired_batch_keeps_its_answers(tmp_path: Path) -> None:
    async def test(runner: JobRunner, _: Service, app: App, now: list[float]) -> None:
        batch_id = add(runner, 6)
        while len(app.bodies) < 3:
            await asyncio.sleep(0.005)
            if len(app.bodies) >= 2:
                app.gate.clear()
        now[0] += 61
        batch = await until(runner, batch_id, "expired")
        store = runner.store()
        left = output(store, batch.error_file_id)
        answered = output(store, batch.output_file_id) if batch.output_file_id else []
        assert len(left) + len(answered) == 6
        assert {entry["error"]["code"] for entry in left} == {"batch_expired"}
        assert batch.expired_at == 1061

    run(tmp_path, test)


@pytest.mark.parametrize("status", [429, 503])
def test_refusals_of_the_server_are_not_results(tmp_path: Path, status: int) -> None:
    async def test(runner: JobRunner, _: Service, app: App, __: list[float]) -> None:
        app.statuses = [status]
        batch = await until(runner, add(runner, 2), "completed")
        assert (batch.completed, batch.failed) == (2, 0)
        assert len(app.bodies) == 3

    run(tmp_path, test)


def test_an_unforeseen_error_loses_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qwink.server.job_runner._AGAIN_S", 0.01)

    async def test(runner: JobRunner, _: Service, app: App, __: list[float]) -> None:
        store, failures = runner.store(), [OSError("full")]
        add_result = store.add_result

        def failing(*arguments: Any, **options: Any) -> None:
            if failures:
                raise failures.pop()
            add_result(*arguments, **options)

        monkeypatch.setattr(store, "add_result", failing)
        batch = await until(runner, add(runner, 3), "completed")
        assert (batch.completed, batch.failed) == (3, 0)

    run(tmp_path, test)


def test_expired_files_are_deleted(tmp_path: Path) -> None:
    async def test(runner: JobRunner, _: Service, __: App, now: list[float]) -> None:
        store = runner.store()
        file = store.add_file("", "batch", "in.jsonl", b"{}", 3600)
        kept = store.add_file("", "batch", "in.jsonl", b"{}")
        now[0] += 3600
        while store.file(file.id, ""):
            await asyncio.sleep(0.01)
        assert not store.path(file.id).exists()
        assert store.path(kept.id).exists()

    run(tmp_path, test)


def test_two_servers_do_not_share_a_folder(tmp_path: Path) -> None:
    async def test(runner: JobRunner, service: Any, app: App, _: list[float]) -> None:
        runner.store()
        other = JobRunner(app, service, tmp_path)
        other.start()  # says so in the log, and goes on
        with pytest.raises(Failure, match="another server"):
            other.store()
        await other.close()

    run(tmp_path, test)


def test_a_server_without_a_folder_says_so(tmp_path: Path) -> None:
    async def test(runner: JobRunner, service: Any, app: App, _: list[float]) -> None:
        for folder, words in ((None, "--files-dir"), (tmp_path / "file" / "x", "its log")):
            (tmp_path / "file").write_bytes(b"")
            with pytest.raises(Failure, match=words):
                JobRunner(app, service, folder).store()

    run(tmp_path, test)


def test_what_a_crash_left_is_removed(tmp_path: Path) -> None:
    store = JobStore(tmp_path)
    kept = store.add_file("", "batch", "a", b"a")
    (tmp_path / "file-orphan").write_bytes(b"x")
    store.close()
    store = JobStore(tmp_path)
    assert store.path(kept.id).read_bytes() == b"a"
    assert not (tmp_path / "file-orphan").exists()
    store.close()


def test_a_result_counts_once(tmp_path: Path) -> None:
    store = JobStore(tmp_path)
    batch = store.add_batch("", "/v1/responses", "file-x", "1h", 3600, {"a": "b"}, None)
    for ok in (True, False):
        store.add_result(batch.id, 1, "text", ok=ok)
    found = store.batch(batch.id)
    assert (found.completed, found.failed, found.metadata) == (1, 0, {"a": "b"})
    assert store.results(batch.id, ok=True) == ["text"]
    store.close()
