"""Runs batches in the background: validates, asks line by line, makes the output files.

Requests of a batch start while no live request waits for its first token, and leave a slot of the
engine to live ones. They take turns by owner. A line that has a result is not run again, also after
a restart.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections import Counter, deque
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout
from starlette.types import ASGIApp

from qwink.server.auth import CLIENT
from qwink.server.background import BACKGROUND, post
from qwink.server.failures import Failure
from qwink.server.job_lines import Line, answered, check_lines, read_body, unanswered
from qwink.server.job_store import JobStore, Status, StoredBatch
from qwink.server.options import ServerOptions

logger = logging.getLogger(__name__)

_TURN_S = 0.25  # between looks at expiry and cancellation
_LIVE_S = 0.05  # between looks at whether live requests wait
_AGAIN_S = 5.0  # after an error that was not foreseen
# Why the lines of a batch that ended early were not run.
_REASONS = {
    "expired": ("batch_expired", "the batch's completion window ended before this request ran"),
    "cancelled": ("batch_cancelled", "the batch was cancelled before this request ran"),
}


@dataclass(slots=True, eq=False)
class Job:
    """A batch in progress: the lines without a result, and those being run."""

    id: str
    owner: str
    endpoint: str
    path: Path
    expires_at: int
    pending: deque[Line]
    running: dict[asyncio.Task[None], Line] = field(default_factory=dict)


class Answerer(Protocol):
    """What answers the requests of batches: whether it can, and whether others come first."""

    draining: bool

    @property
    def options(self) -> ServerOptions: ...
    @property
    def loaded(self) -> bool: ...
    @property
    def alive(self) -> bool: ...
    @property
    def live_waits(self) -> bool: ...


class JobRunner:
    """All batches of a server. Create it anywhere; call `start` in the event loop."""

    def __init__(
        self,
        app: ASGIApp,
        service: Answerer,
        folder: Path | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`folder` None: the server keeps no files. `app` answers the requests."""
        self._app, self._service, self._folder, self._clock = app, service, folder, clock
        self._store: JobStore | None = None
        self._lock = None if folder is None else FileLock(folder / "lock", timeout=0)
        self._jobs: dict[str, Job] = {}
        self._wake = asyncio.Event()
        self._main: asyncio.Task[None] | None = None

    def start(self) -> bool:
        """Go on with the batches of an earlier process, if there are any. Returns whether that was
        possible.
        """
        if self._folder is not None and JobStore.exists(self._folder):
            try:
                self.store()
            except Failure as failure:
                logger.warning("batches are not continued: %s", failure.message)
                return False
        return True

    def store(self) -> JobStore:
        """The files and batches, opened at the first use. Raises Failure if they cannot be kept."""
        if self._store is None:
            self._store = self._open()
            # Not in the context of the request that is the first to need the store.
            self._main = asyncio.create_task(self._run(), context=Context())
        return self._store

    def _open(self) -> JobStore:
        if self._folder is None or self._lock is None:
            message = "this server keeps no files; start it with --files-dir"
            raise Failure(404, message, "files_disabled")
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock.acquire()
            return JobStore(self._folder, self._clock)
        except Timeout:
            message = "another server uses this one's files; give each a --files-dir"
            raise Failure(503, message, "files_in_use") from None
        except (OSError, sqlite3.Error) as error:
            self._lock.release()
            logger.warning("files cannot be kept: %s", error)
            message = "this server cannot keep files; its log gives the reason"
            raise Failure(503, message, "files_unavailable") from None

    def wake(self) -> None:
        """Look at the batches at once: one was made or cancelled."""
        self._wake.set()

    async def close(self) -> None:
        """Stop; what is under way is run again by the next process."""
        tasks = [task for job in self._jobs.values() for task in job.running]
        tasks += [self._main] if self._main is not None else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._store is not None and self._lock is not None:
            self._store.close()
            self._store = None
            self._lock.release()

    async def _run(self) -> None:
        while True:
            try:
                await self._turn()
            except Exception:
                logger.exception("batches failed; they go on in %.0f s", _AGAIN_S)
                await asyncio.sleep(_AGAIN_S)

    async def _turn(self) -> None:
        """Bring each batch a step on, start requests, and wait until something happens."""
        self._wake.clear()
        store = self.store()
        for file_id in store.expired_files():
            store.delete_file(file_id)
        for batch in store.unfinished():
            await self._advance(batch)
        waiting = self._start_requests()
        tasks = [task for job in self._jobs.values() for task in job.running]
        woken = asyncio.create_task(self._wake.wait())
        try:
            await asyncio.wait(
                {*tasks, woken},
                timeout=_LIVE_S if waiting else _TURN_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            woken.cancel()

    async def _advance(self, batch: StoredBatch) -> None:
        store = self.store()
        if batch.id not in self._jobs and not await self._load(batch):
            return
        if batch.status == "cancelling":
            await self._finish(batch, "cancelled")
        elif store.now >= batch.expires_at:
            await self._finish(batch, "expired")
        elif not self._jobs[batch.id].pending and not self._jobs[batch.id].running:
            await self._finish(batch, "completed")

    async def _load(self, batch: StoredBatch) -> bool:
        """Read and check the input file. Returns False if the batch failed."""
        store = self.store()
        path = store.path(batch.input_file_id)
        try:
            lines, errors = await asyncio.to_thread(check_lines, path, batch.endpoint)
        except OSError as error:
            logger.warning("the input of %s cannot be read: %s", batch.id, error)
            lines, message = [], "the input file cannot be read; upload it again"
            errors = [{"code": "file_unreadable", "message": message, "param": None, "line": None}]
        if errors:
            store.set_status(batch.id, "failed", errors=errors)
            return False
        done = store.lines_done(batch.id)
        pending = deque(line for line in lines if line.number not in done)
        self._jobs[batch.id] = Job(
            batch.id, batch.owner, batch.endpoint, path, batch.expires_at, pending
        )
        if store.batch(batch.id).status == "validating":  # it may have been cancelled since
            store.set_status(batch.id, "in_progress", total=len(lines))
        return True

    def _start_requests(self) -> bool:
        """Start as many requests as there is room for. Returns whether live requests hinder it."""
        service = self._service
        if not service.loaded or not service.alive or service.draining:
            return False
        running = Counter({job.owner: len(job.running) for job in self._jobs.values()})
        # One more than the engine runs is prepared ahead.
        room = service.options.max_running + 1 - running.total()
        for _ in range(room):
            ready = [job for job in self._jobs.values() if job.pending]
            if not ready:
                return False
            if service.live_waits:
                return True
            job = min(ready, key=lambda job: running[job.owner])
            running[job.owner] += 1
            line = job.pending.popleft()
            task = asyncio.create_task(self._ask_safely(job, line))
            job.running[task] = line
            task.add_done_callback(job.running.pop)
        return False

    async def _ask_safely(self, job: Job, line: Line) -> None:
        """Run the request of a line, again later if an error comes that was not foreseen."""
        try:
            await self._ask(job, line)
        except Exception:  # such as a full disk
            logger.exception("a request of %s failed; it is run again", job.id)
            await asyncio.sleep(_AGAIN_S)
            job.pending.append(line)

    async def _ask(self, job: Job, line: Line) -> None:
        """Run the request of a line and keep its result."""
        store = self.store()
        try:
            body = await asyncio.to_thread(read_body, job.path, line)
            deadline = time.monotonic() + job.expires_at - store.now
            marks = {BACKGROUND: deadline, CLIENT: job.owner}
            response = await post(self._app, job.endpoint, body, marks)
        except OSError as error:
            logger.warning("a line of %s cannot be read: %s", job.id, error)
            text = unanswered(job.id, line, "file_unreadable", "the input file cannot be read")
            store.add_result(job.id, line.number, text, ok=False)
            return
        if response.status_code in (429, 503) or store.now >= job.expires_at:
            job.pending.append(line)  # the server is stopping, loading, or full
            await asyncio.sleep(_TURN_S)
            return
        text = answered(
            job.id,
            line,
            response.status_code,
            response.headers.get("x-request-id", ""),
            response.json(),
        )
        store.add_result(job.id, line.number, text, ok=response.status_code == 200)

    async def _finish(self, batch: StoredBatch, status: Status) -> None:
        """End a batch: stop what runs, and make its output files."""
        store, job = self.store(), self._jobs.pop(batch.id)
        left = sorted([*job.pending, *job.running.values()], key=lambda line: line.number)
        tasks = list(job.running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        done = store.lines_done(batch.id)
        if status == "completed":
            store.set_status(batch.id, "finalizing")
        await asyncio.to_thread(
            self._write, batch, status, [line for line in left if line.number not in done]
        )

    def _write(self, batch: StoredBatch, status: Status, left: list[Line]) -> None:
        store = self.store()
        outputs, errors = store.results(batch.id, ok=True), store.results(batch.id, ok=False)
        if left:
            code, message = _REASONS[status]
            errors += [unanswered(batch.id, line, code, message) for line in left]
        output, error = (
            "".join(f"{text}\n" for text in texts).encode() if texts else None
            for texts in (outputs, errors)
        )
        store.finish(batch, status, output, error)
