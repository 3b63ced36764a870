"""The model behind the server: loaded in the background, watched, drained and closed."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from qwink.errors import DeadlineExceeded, EngineStopped, Overloaded
from qwink.runtime.request import Request, Ticket
from qwink.runtime.vlm import VLM
from qwink.server.failures import Failure, not_ready, shutting_down
from qwink.server.metrics import Metrics
from qwink.server.options import ServerOptions, memory_of
from qwink.server.uploads import Uploads
from qwink.types import Event, Message, Result

T = TypeVar("T")

# Decoding and resizing release the GIL; more threads would only take cores from the engine.
_NUM_WORKERS = 2
_WATCH_INTERVAL_S = 0.25


class Service:
    """What all requests of one app share. Made outside of the event loop, started inside."""

    def __init__(self, load: Callable[[], VLM], options: ServerOptions) -> None:
        self.options = options
        self.uploads = Uploads(memory_of(options).upload_bytes)
        self.metrics = Metrics()
        self.error: BaseException | None = None  # why the model is not or no longer there
        self.draining = False
        self.num_active = 0  # requests for answers, from their arrival to their end
        self.ended = asyncio.Event()  # set when nothing can be served any more
        self._load = load
        self._vlm: VLM | None = None
        self._pool = ThreadPoolExecutor(_NUM_WORKERS, thread_name_prefix="qwink-prepare")
        self._runs: set[Run] = set()
        self._watch: asyncio.Task[None] | None = None
        self._seconds_per_answer = 1.0

    def start(self) -> None:
        """Begin to load the model. Called in the event loop."""
        # A daemon, so that a process told to stop need not wait for an export.
        threading.Thread(target=self._load_model, name="qwink-load", daemon=True).start()
        self._watch = asyncio.create_task(self._watch_engine())

    def _load_model(self) -> None:
        try:
            vlm = self._load()
            for text in self.options.warm:
                turns = (Message("system", (text,)), Message("user", (".",)))
                image_options, sampling = vlm.split_options({"max_tokens": 1})
                for _ in vlm.stream_messages(turns, image_options, sampling):
                    pass
        except BaseException as error:  # in a thread: nobody else would hear of it
            self.error = error
            return
        self._vlm = vlm
        self.metrics.watch(vlm, self)

    async def _watch_engine(self) -> None:
        while self.error is None:
            if self._vlm is not None and not self.alive:
                self.error = self._vlm.scheduler.error or EngineStopped("the engine has stopped")
                break
            await asyncio.sleep(_WATCH_INTERVAL_S)
        self.ended.set()

    @property
    def loaded(self) -> bool:
        return self._vlm is not None

    @property
    def alive(self) -> bool:
        """Whether the engine does its work, or will once it is loaded."""
        engine_lives = self._vlm is None or self.draining or self._vlm.scheduler.alive
        return self.error is None and engine_lives

    @property
    def vlm(self) -> VLM:
        """Raises Failure while it is loading, when it failed, and when the server stops."""
        if self.draining:
            raise shutting_down()
        if not self.alive:
            raise Failure(503, "the engine has stopped", "engine_stopped")
        if self._vlm is None:
            raise not_ready("the model is loading; try again in a moment")
        return self._vlm

    async def until_loaded(self, seconds: float) -> None:
        """Returns when the model is there, will never be, or the time is over."""
        deadline = time.monotonic() + seconds
        while self._vlm is None and self.alive and not self.draining:
            if time.monotonic() >= deadline:
                break
            await asyncio.sleep(0.05)

    @property
    def model_names(self) -> tuple[str, ...]:
        return self.options.served_model_name or (self.vlm.name,)

    @property
    def retry_after(self) -> int:
        """Seconds until a place in the queue is likely to be free."""
        rounds = 1 + self.num_active / self.options.max_running
        return min(60, max(1, math.ceil(rounds * self._seconds_per_answer / 2)))

    def admit(self) -> None:
        """Raises Overloaded when as many requests are under way as can run and wait."""
        if self.num_active > self.options.max_running + self.options.max_waiting:
            raise Overloaded("too many requests are under way")

    def took(self, seconds: float) -> None:
        """How long an answer took, for `retry_after`."""
        self._seconds_per_answer += (seconds - self._seconds_per_answer) / 8

    async def work(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run what takes a while in one of a few threads."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    def run(self, request: Request, on_result: Callable[[Result], None]) -> Run:
        """Submit a request. Raises Overloaded or EngineStopped; close what it returns."""
        run = Run(asyncio.get_running_loop(), request.deadline, on_result)
        run.ticket = self.vlm.scheduler.submit(request, run.listen)
        self._runs.add(run)
        run.on_close = lambda: self._runs.discard(run)
        return run

    async def drain(self, hurry: asyncio.Event) -> None:
        """Take nothing new; wait for the answers under way, for `grace` seconds or until `hurry`
        is set; then end the rest with an error.
        """
        self.draining = True
        deadline = time.monotonic() + self.options.grace
        while self.num_active and time.monotonic() < deadline and not hurry.is_set():
            await asyncio.sleep(0.05)
        for run in self._runs:
            run.put(shutting_down())
        deadline = time.monotonic() + 2
        while self.num_active and time.monotonic() < deadline:
            await asyncio.sleep(0.02)

    async def close(self) -> None:
        """Let go of the model. Answers still under way end with an error."""
        self.draining = True
        if self._watch is not None:
            self._watch.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)
        vlm, self._vlm = self._vlm, None
        if vlm is not None:
            await asyncio.to_thread(vlm.close, 2.0)


class Run:
    """One answer's events on their way from the engine thread to the event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        deadline: float | None,
        on_result: Callable[[Result], None],
    ) -> None:
        self.ticket: Ticket | None = None
        self.on_close: Callable[[], None] = lambda: None
        self._loop, self._deadline, self._on_result = loop, deadline, on_result
        self._inbox: asyncio.Queue[Event | Exception] = asyncio.Queue()

    def listen(self, message: Event | Exception) -> None:
        """Called from the engine thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.put, message)

    def put(self, message: Event | Exception) -> None:
        self._inbox.put_nowait(message)

    async def next(self) -> Event:
        """The next event; the last carries the result. Raises what ended the request."""
        # The engine looks at deadlines between steps, of which encoding a large image is one.
        left = None if self._deadline is None else self._deadline + 0.5 - time.monotonic()
        try:
            async with asyncio.timeout(left):
                message = await self._inbox.get()
        except TimeoutError:
            raise DeadlineExceeded("the answer took too long") from None
        if isinstance(message, Exception):
            raise message
        if message.result is not None:
            self._on_result(message.result)
        return message

    def close(self) -> None:
        """Free the slot, if the answer is still in the making."""
        if self.ticket is not None:
            self.ticket.cancel()
        self.on_close()
