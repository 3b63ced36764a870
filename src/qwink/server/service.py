"""Holds the model of the server: loads it in the background, watches it, drains and closes."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from qwink.cache.shared import SharedImages
from qwink.errors import DeadlineExceeded, EngineStopped, Overloaded
from qwink.runtime.joined import Running
from qwink.runtime.request import Listener, Request
from qwink.runtime.vlm import VLM
from qwink.server.failures import Failure, not_ready, shutting_down
from qwink.server.metrics import Metrics
from qwink.server.options import ServerOptions, memory_of
from qwink.server.patience import Patience
from qwink.server.shared_uploads import SharedUploads
from qwink.server.uploads import Uploads
from qwink.types import Event, Message, Result

T = TypeVar("T")

# Decoding and resizing release the GIL. More threads would take cores from the engine.
_NUM_WORKERS = 2
_MAX_FETCHES = 32  # at once; they wait for other servers, and take no time themselves
_WATCH_INTERVAL_S = 0.25
_LOADER_PATIENCE_S = 5.0


class ModelService:
    """The model and the state that all requests of one app share.

    Create it anywhere; call `start` inside the event loop.
    """

    def __init__(
        self,
        load: Callable[[], VLM],
        options: ServerOptions,
        shared: SharedImages | None = None,
    ) -> None:
        """`shared` is the store that the model has too, for uploads."""
        self.options = options
        self.uploads = Uploads(
            memory_of(options).upload_bytes,
            options.max_image_pixels,
            None if shared is None else SharedUploads(shared.store),
        )
        self.metrics = Metrics()
        self.error: BaseException | None = None  # why the model did not load, or stopped
        self.draining = False
        self.arriving = Patience()  # bodies: ended when the drain begins
        self.preparing = Patience()  # pictures: ended with the grace
        # Answers that are admitted and not yet ended, and those that let others pass.
        self.num_active = self.num_flex = 0
        self.ended = asyncio.Event()  # set when the model failed to load or the engine stopped
        self._load = load
        self._vlm: VLM | None = None
        self._pool = ThreadPoolExecutor(_NUM_WORKERS, thread_name_prefix="qwink-prepare")
        self._fetches = ThreadPoolExecutor(_MAX_FETCHES, thread_name_prefix="qwink-fetch")
        self._streams: set[AnswerEvents] = set()
        self._loader: threading.Thread | None = None
        self._watch: asyncio.Task[None] | None = None
        self._seconds_per_answer = 1.0

    def start(self) -> None:
        """Start to load the model. Called in the event loop."""
        # A daemon thread, so that a process can stop without waiting for an export.
        self._loader = threading.Thread(target=self._load_model, name="qwink-load", daemon=True)
        self._loader.start()
        self._watch = asyncio.create_task(self._watch_engine())

    def _load_model(self) -> None:
        try:
            vlm = self._load()
            for text in () if self.draining else self.options.warm:
                turns = (Message("system", (text,)), Message("user", (".",)))
                image_options, sampling = vlm.split_options({"max_tokens": 1})
                for _ in vlm.stream_messages(turns, image_options, sampling):
                    pass
        except BaseException as error:  # a thread would lose it; _watch_engine reports it
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
    def loading(self) -> bool:
        """Whether the thread that loads the model runs."""
        return self._loader is not None and self._loader.is_alive()

    @property
    def alive(self) -> bool:
        """Whether the engine runs, or may still run once the model is loaded."""
        engine_lives = self._vlm is None or self.draining or self._vlm.scheduler.alive
        return self.error is None and engine_lives

    @property
    def vlm(self) -> VLM:
        """The model. Raises Failure while it loads, after it failed, and while the server stops."""
        if self.draining:
            raise shutting_down()
        if not self.alive:
            raise Failure(503, "the engine has stopped", "engine_stopped")
        if self._vlm is None:
            raise not_ready("the model is loading; try again in a moment")
        return self._vlm

    async def until_loaded(self, seconds: float) -> None:
        """Wait until the model is loaded or cannot be, for at most `seconds`."""
        deadline = time.monotonic() + seconds
        while self._vlm is None and self.alive and not self.draining:
            if time.monotonic() >= deadline:
                break
            await asyncio.sleep(0.05)

    @property
    def num_answers(self) -> int:
        """Answers that are admitted and not yet ended, without those of batches."""
        return self.num_active + self.num_flex

    @property
    def live_waits(self) -> bool:
        """Whether a request that is not in the background has no token yet."""
        return self.num_active > self.vlm.scheduler.num_live_running

    @property
    def model_names(self) -> tuple[str, ...]:
        return self.options.served_model_name or (self.vlm.name,)

    @property
    def retry_after(self) -> int:
        """Estimated seconds until the queue has room."""
        rounds = 1 + self.num_active / self.options.max_running
        return min(60, max(1, math.ceil(rounds * self._seconds_per_answer / 2)))

    def admit(self, count: int = 1, flex: bool = False) -> None:
        """Raises Overloaded unless there is room for `count` answers of one request, and Failure
        if there never is. Flex requests have as much room of their own.

        One more than `max_running` + `max_waiting` may be active, so that it is prepared meanwhile.
        """
        room = self.options.max_running + self.options.max_waiting
        if count > max(1, room):
            message = f"n is {count}, and this server runs and queues {room} answers; lower it"
            raise Failure(400, message, "invalid_value", "n")
        if (self.num_flex if flex else self.num_active) + count > room + 1:
            raise Overloaded("too many requests are running or waiting")

    def record_duration(self, seconds: float) -> None:
        """Include the duration of an answer in the estimate of `retry_after`."""
        self._seconds_per_answer += (seconds - self._seconds_per_answer) / 8

    async def work(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a function that computes in the thread pool."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    async def work_by_turns(self, steps: Generator[None, None, T]) -> T:
        """Run a generator in the thread pool, and return its value.

        Between two of its steps others have their turns: no request waits for all pictures of
        another. A caller that is cancelled leaves the step that runs as the last one.
        """
        while True:
            end = await self.work(_step, steps)
            if end is not None:
                value: T = end[0]
                return value

    async def fetch(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a function that waits for another server, in a pool of its own.

        A caller fetches one picture after the other, so that each request takes one thread.
        """
        return await asyncio.get_running_loop().run_in_executor(self._fetches, function, *arguments)

    def submit(
        self, requests: Sequence[Request], on_result: Callable[[Result], None]
    ) -> AnswerEvents:
        """Submit the answers of one request to the engine. The caller must close the events.

        Raises Overloaded or EngineStopped.
        """
        loop = asyncio.get_running_loop()
        events = AnswerEvents(loop, requests[0].deadline, on_result, len(requests))
        try:
            for number, request in enumerate(requests):
                listener = events.listener(number)
                events.tickets.append(self.vlm.scheduler.submit(request, listener))
        except BaseException:
            events.close()
            raise
        self._streams.add(events)
        events.on_close = lambda: self._streams.discard(events)
        return events

    async def drain(self, stop_now: asyncio.Event) -> None:
        """Refuse new requests and wait until the running answers end, for at most `grace` seconds
        or until `stop_now` is set. Then end the remaining answers with an error.

        A model that is loading has a few seconds to notice that it is no longer wanted.
        """
        self.draining = True
        self.arriving.end()
        patience = time.monotonic() + _LOADER_PATIENCE_S
        while self.loading and time.monotonic() < patience and not stop_now.is_set():
            await asyncio.sleep(0.05)
        deadline = time.monotonic() + self.options.grace
        while self.num_answers and time.monotonic() < deadline and not stop_now.is_set():
            await asyncio.sleep(0.05)
        for events in self._streams:
            events.put(shutting_down())
        self.preparing.end()
        deadline = time.monotonic() + 2
        while self.num_answers and time.monotonic() < deadline:
            await asyncio.sleep(0.02)

    async def close(self) -> None:
        """Close the model. Answers that are still running end with an error."""
        self.draining = True
        if self._watch is not None:
            self._watch.cancel()
        for pool in (self._pool, self._fetches):
            pool.shutdown(wait=False, cancel_futures=True)
        vlm, self._vlm = self._vlm, None
        if vlm is not None:
            await asyncio.to_thread(vlm.close, 2.0)


def _step(steps: Generator[None, None, T]) -> tuple[T] | None:
    """Run a generator's next step. Returns its value, in a tuple, if that was the last."""
    try:
        next(steps)
    except StopIteration as end:
        return (end.value,)
    return None


class AnswerEvents:
    """The events of one request's answers, passed from the engine thread to the event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        deadline: float | None,
        on_result: Callable[[Result], None],
        count: int = 1,
    ) -> None:
        """`count`: how many answers there are; `on_result` is called with each result."""
        self.count = count
        self.tickets: list[Running] = []
        self.on_close: Callable[[], None] = lambda: None
        self._loop, self._deadline, self._on_result = loop, deadline, on_result
        self._inbox: asyncio.Queue[tuple[int, Event | Exception]] = asyncio.Queue()

    def listener(self, number: int) -> Listener:
        """What the engine thread calls with the messages of answer `number`."""

        def listen(message: Event | Exception) -> None:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self.put, message, number)

        return listen

    def put(self, message: Event | Exception, number: int = 0) -> None:
        self._inbox.put_nowait((number, message))

    async def next(self) -> tuple[int, Event]:
        """The next event and the number of its answer; each answer's last event has its result.

        Raises the error that ended an answer, and with it the request.
        """
        # The engine checks deadlines between its steps only, and one step may encode a large image.
        # So this side waits half a second longer and then stops waiting.
        left = None if self._deadline is None else self._deadline + 0.5 - time.monotonic()
        try:
            async with asyncio.timeout(left):
                number, message = await self._inbox.get()
        except TimeoutError:
            raise DeadlineExceeded("the answer took too long") from None
        if isinstance(message, Exception):
            raise message
        if message.result is not None:
            self._on_result(message.result)
        return number, message

    def close(self) -> None:
        """Cancel the answers that are still running, which frees their slots."""
        for ticket in self.tickets:
            ticket.cancel()
        self.on_close()
