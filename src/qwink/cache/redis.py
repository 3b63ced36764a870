"""Bytes in Redis or Valkey, shared by machines. No caller waits for it, and no call raises.

A thread with an event loop does all reads and writes, so that each has a deadline whatever the
server does: socket timeouts alone do not bound a server that sends a byte now and then. `fetch`
returns a future at once. Whoever needs the value decides how long to wait for it.

Fetching an encoded picture can take longer than the 50 ms that a store may delay an answer, and
still be much faster than encoding it: 17 MB for 1024x1024 pixels against seconds. So nobody waits
for a fetch to make progress. It begins when the picture has been prepared. Its request waits for it
up to 25 ms, and then the picture is encoded while the fetch goes on. Whichever is first is used; a
fetch that comes too late is cancelled (`late`).

After several failures in a row, reads or writes are skipped for a while (`breaker`). A fetch that
came too late is a failure as well: a store slower than the encoder is of no use.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from qwink.cache.address import StoreOptions
from qwink.cache.breaker import NUM_FAILURES, Breaker
from qwink.cache.entry import Unusable

if TYPE_CHECKING:
    from redis.asyncio import Redis

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

_NUM_READS = 4  # at once; writes go one after the other
# Python's streams read 17 MB in pieces of this size in 31 ms, and at once in 81 ms.
_PIECE_BYTES = 1 << 20
_QUEUED_BYTES = 128 << 20  # most that wait to be written
# A read or write may take this long, plus the time of its bytes at a rate that is still of use.
_LEAST_S = 0.5
_LEAST_BYTES_PER_S = 10e6
_CLOSE_S = 0.5  # for writes under way when the process ends

# How reads end. Late: the value was not needed any more.
READS = ("hit", "miss", "damaged", "late", "timeout", "error", "skipped")
# How writes end. Dropped: too many waited. Refused: too large, or not to be kept.
WRITES = ("written", "dropped", "refused", "timeout", "error", "skipped")


class RedisStore:
    """Reads and writes entries of one server. Safe to share between threads.

    `reads` and `writes` count how calls ended (`READS`, `WRITES`), `num_bytes` the bytes of entries
    that were read ("read") and written ("write").
    """

    def __init__(self, options: StoreOptions) -> None:
        """Does not wait for the server, which need not be there."""
        self.options = options
        self.reads = Counter(dict.fromkeys(READS, 0))
        self.writes = Counter(dict.fromkeys(WRITES, 0))
        self.num_bytes = Counter({"read": 0, "write": 0})
        self.breakers = {
            side: Breaker(lambda opened, reason, side=side: self._report(side, opened, reason))  # type: ignore[misc]
            for side in ("read", "write")
        }
        self._queued_bytes = 0
        self._lock = threading.Lock()
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._client: Redis | None = None
        self._reading = asyncio.Semaphore(_NUM_READS)
        self._writing = asyncio.Semaphore(1)
        self._puts: set[asyncio.Task[Any]] = set()
        self._thread = threading.Thread(target=self._run, name="qwink-redis", daemon=True)
        self._thread.start()

    @property
    def num_queued_bytes(self) -> int:
        """Bytes that wait to be written, or are being written."""
        return self._queued_bytes

    def fetch(self, name: str, most_bytes: int, read: Callable[[bytes], T]) -> Future[T | None]:
        """The entry `name` as `read` turns it, or None; the future never raises.

        An entry longer than `most_bytes` is not read. `read` raises Unusable for a damaged entry.
        Cancel the future if the value is not needed any more: that counts as late.
        """
        none: Future[T | None] = Future()
        none.set_result(None)
        if self._closed or most_bytes > self.options.max_entry_bytes:
            return none
        if not self.breakers["read"].allows():
            self._count(self.reads, "skipped")
            return none
        return self._start(self._fetch(name, most_bytes, read)) or none

    def put(self, name: str, num_bytes: int, content: Callable[[], bytes]) -> None:
        """Write an entry in the background. `content` makes it, and has about `num_bytes`.

        `content` raises Unusable for what is not to be kept.
        """
        if self._closed:
            return
        if num_bytes > self.options.max_entry_bytes:
            self._count(self.writes, "refused")
            return
        with self._lock:
            full = self._queued_bytes + num_bytes > _QUEUED_BYTES
            self._queued_bytes += 0 if full else num_bytes
        if full:
            self._count(self.writes, "dropped")
            return
        self._start(self._put(name, num_bytes, content))

    def close(self) -> None:
        """Give writes under way a short time to end, then disconnect."""
        if self._closed:
            return
        self._closed = True
        self._start(self._finish())
        self._thread.join(2 * _CLOSE_S)

    def _start(self, work: Coroutine[Any, Any, T]) -> Future[T] | None:
        """Run `work` in the store's thread; None if that has ended."""
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            return None

    # The store's thread from here on.

    def _run(self) -> None:
        """Importing the client takes a third of a second, so this thread does it."""
        try:
            self._client = _connect(self.options)
        except Exception as error:
            self._give_up(error)
        else:
            self._greeting = self._loop.create_task(self._greet())
        self._loop.run_forever()
        self._loop.close()

    async def _greet(self) -> None:
        """Connect before the first request. If that fails, the first requests are not delayed."""
        try:
            async with asyncio.timeout(_LEAST_S):
                await self._server.ping()
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        for _ in range(NUM_FAILURES):
            self._failed("read", error)

    async def _fetch(self, name: str, most_bytes: int, read: Callable[[bytes], T]) -> T | None:
        breaker = self.breakers["read"]
        begun = False
        try:
            async with self._reading:
                begun = True
                async with asyncio.timeout(_limit_s(most_bytes)):
                    # One byte more than the longest entry: what is longer is damaged.
                    data = await self._read(name, most_bytes + 1)
        except asyncio.CancelledError:
            if not begun:
                breaker.abandoned()
            else:
                self._count(self.reads, "late")
                breaker.failed("it was too slow to be of use")
            raise
        except Exception as error:
            self._count(self.reads, self._failed("read", error))
            return None
        breaker.succeeded()
        self._count(self.num_bytes, "read", len(data))
        if not data:
            self._count(self.reads, "miss")
            return None
        try:
            value = await self._loop.run_in_executor(None, read, data)
        except Exception:  # Unusable, or no memory for it
            self._count(self.reads, "damaged")
            return None
        self._count(self.reads, "hit")
        return value

    async def _read(self, name: str, most_bytes: int) -> bytes:
        """The entry's first bytes; empty if it is missing."""
        pieces = self._server.pipeline(transaction=False)
        for start in range(0, most_bytes, _PIECE_BYTES):
            pieces.getrange(name, start, min(start + _PIECE_BYTES, most_bytes) - 1)
        return b"".join(await pieces.execute())

    async def _put(self, name: str, num_bytes: int, content: Callable[[], bytes]) -> None:
        breaker = self.breakers["write"]
        task = asyncio.current_task()
        assert task is not None
        self._puts.add(task)
        try:
            async with self._writing:
                if not breaker.allows():
                    self._count(self.writes, "skipped")
                    return
                try:
                    data = await self._loop.run_in_executor(None, content)
                except Unusable:
                    self._count(self.writes, "refused")
                    breaker.abandoned()
                    return
                ttl = self.options.ttl_s
                async with asyncio.timeout(_limit_s(len(data))):
                    await self._server.set(name, data, ex=None if ttl is None else math.ceil(ttl))
        except Exception as error:
            self._count(self.writes, self._failed("write", error))
            return
        finally:
            self._puts.discard(task)
            with self._lock:
                self._queued_bytes -= num_bytes
        breaker.succeeded()
        self._count(self.writes, "written")
        self._count(self.num_bytes, "write", len(data))

    @property
    def _server(self) -> Redis:
        if self._client is None:
            raise ConnectionError("the store's URL cannot be used")
        return self._client

    async def _finish(self) -> None:
        if self._puts and self.breakers["write"].state == "closed":
            await asyncio.wait(self._puts, timeout=_CLOSE_S)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._client is not None:
            try:
                async with asyncio.timeout(_CLOSE_S / 5):
                    await self._client.aclose()
            except Exception as error:
                _LOG.debug("the store did not close: %s", error)
        self._loop.call_soon(self._loop.stop)

    def _count(self, counter: Counter[str], what: str, number: int = 1) -> None:
        with self._lock:
            counter[what] += number

    def _failed(self, side: str, error: Exception) -> str:
        """What to count it as."""
        timed_out = isinstance(error, TimeoutError)
        self.breakers[side].failed("it did not answer in time" if timed_out else _told(error))
        return "timeout" if timed_out else "error"

    def _report(self, side: str, opened: bool, reason: str) -> None:
        doing = {"read": "reading from", "write": "writing to"}[side]
        if opened:
            _LOG.warning(
                "%s the shared store %s fails: %s; it is skipped, and tried again now and then",
                doing,
                self.options.place,
                reason,
            )
        else:
            _LOG.warning("%s the shared store %s works again", doing, self.options.place)


def _connect(options: StoreOptions) -> Redis:
    """A client, which connects when it is first used."""
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    settings: dict[str, Any] = {
        "retry": Retry(NoBackoff(), 0),  # the deadlines and the breaker are ours
        "socket_timeout": None,
        "socket_connect_timeout": None,
    }
    return Redis.from_url(options.url, **settings)


def _limit_s(num_bytes: int) -> float:
    return _LEAST_S + num_bytes / _LEAST_BYTES_PER_S


def _told(error: Exception) -> str:
    """The first line of an error, without what a URL may hold."""
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
