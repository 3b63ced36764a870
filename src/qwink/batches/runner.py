"""Items → rows, many at once: pictures are read and decoded ahead in threads, the engine's
scheduler answers them together. Rows come as they are done, not in the order of the items.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from qwink.batches.claims import Claims, Lead
from qwink.batches.duplicates import difference_hash, is_blank
from qwink.batches.items import Item
from qwink.batches.occupancy import Limit, Occupancy
from qwink.batches.rows import Row
from qwink.engine.threads import physical_cores
from qwink.errors import EngineStopped, ImageError, Overloaded, QwinkError
from qwink.inputs.containers import is_video
from qwink.inputs.data_urls import is_data_url, unpack_data_url
from qwink.inputs.files import BinaryFile, read_object, spelled
from qwink.inputs.images import OpenedImage, open_image
from qwink.runtime.joined import Running
from qwink.runtime.listening import with_data
from qwink.runtime.messages import DEFAULT_QUESTIONS, user_message
from qwink.runtime.preparation import ImageOptions
from qwink.runtime.request import Request
from qwink.runtime.sampling import AskedSampling
from qwink.runtime.vlm import VLM
from qwink.types import EncodedImage, Event, Message, Picture, Result, Video

logger = logging.getLogger(__name__)

MOST_THREADS = 8
_PAUSE_S = 0.05  # between attempts where others fill the queue of the engine


@dataclass(frozen=True, slots=True)
class Asking:
    """What is asked about every item, and what need not be."""

    question: str | None
    system: str | None
    images: ImageOptions
    sampling: AskedSampling
    near_duplicates: int | None = None
    skip_blank: bool = False

    def question_for(self, item: Item) -> str:
        return item.question or self.question or DEFAULT_QUESTIONS[self.images.task]


@dataclass(slots=True, eq=False)
class Work:
    """An item under way. `alone`: it is answered whatever it looks like."""

    item: Item
    row: Row
    alone: bool = False
    lead: Lead[Work] | None = None
    request: Request | None = None
    ticket: Running | None = None
    read_s: float = 0.0


Write = Callable[[Row], int]  # writes a row; returns its place in the file


class Runner:
    """Runs one batch on a model, which others may use as well."""

    def __init__(
        self, vlm: VLM, asking: Asking, concurrency: int | None, claims: Claims[Work], write: Write
    ) -> None:
        """`concurrency`: answers under way at once, None for as many as the engine runs."""
        self._vlm, self._asking, self._claims, self._write = vlm, asking, claims, write
        limits = vlm.scheduler.limits
        running = min(concurrency or limits.max_running, limits.max_running)
        # As many again wait in the engine's queue, so that a slot is never empty.
        ahead = min(running, limits.max_waiting) if running == limits.max_running else 0
        self._places = threading.Semaphore(running + ahead)
        self._num_threads = min(MOST_THREADS, max(2, physical_cores()))
        self._window = running + ahead + 2 * self._num_threads
        self.occupancy = Occupancy(running)
        self._outbox: SimpleQueue[tuple[Work, Result | Exception | Row]] = SimpleQueue()
        self._under_way: set[Work] = set()
        self._stopped = threading.Event()

    def limit(self) -> Limit | None:
        """What limited the run, if that is known."""
        return self.occupancy.limit()

    def run(self, items: Iterator[Item]) -> Generator[Row, None, None]:
        """The rows, written. Closing the iterator stops what is under way.

        Raises EngineStopped, and OSError if a row cannot be written.
        """
        with ThreadPoolExecutor(self._num_threads, "qwink-batch") as pool:
            try:
                yield from self._run(items, pool)
            finally:
                self._stop()
                pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, items: Iterator[Item], pool: ThreadPoolExecutor) -> Iterator[Row]:
        more = True
        while True:
            while more and len(self._under_way) < self._window:
                item = next(items, None)
                if item is None:
                    more = False
                    break
                work = Work(item, self._empty_row(item))
                self._under_way.add(work)
                pool.submit(self._start, work)
            if not self._under_way:
                return
            work, outcome = self._outbox.get()
            for row, followers in self._settle(work, outcome):
                yield row
                for other in followers:  # their lead failed
                    other.alone = True
                    pool.submit(self._start, other)

    def _empty_row(self, item: Item) -> Row:
        question = self._asking.question_for(item)
        return Row(item.id, item.source, question, item.part.page, item.part.time_s)

    def _stop(self) -> None:
        self._stopped.set()
        for work in self._under_way:
            if work.ticket is not None:
                work.ticket.cancel()
            self._places.release()

    def _settle(
        self, work: Work, outcome: Result | Exception | Row
    ) -> Iterator[tuple[Row, list[Work]]]:
        """The rows that follow from an outcome, with the items to start again."""
        if isinstance(outcome, EngineStopped):
            raise outcome
        if isinstance(outcome, Row):
            row = outcome
        elif isinstance(outcome, Exception):
            row = work.row.failed(outcome)
        else:
            assert work.request is not None
            result = with_data(Event("", outcome), work.request).result
            assert result is not None
            row = work.row.answered(result, work.read_s)
        followers = self._finish(work, row)
        if row.answer is None:
            yield row, followers
            return
        yield row, []
        for other in followers:
            copy = other.row.copied(row)
            self._finish(other, copy)
            yield copy, []

    def _finish(self, work: Work, row: Row) -> list[Work]:
        place = self._write(row)
        self._under_way.discard(work)
        return self._claims.settle(row, place, work.lead)

    # In the threads that read and decode, from here on.

    def _start(self, work: Work) -> None:
        try:
            outcome = self._prepare(work)
        except Exception as error:
            if not isinstance(error, QwinkError):  # not foreseen: it ends this item, not the run
                logger.warning("%s failed", work.item.id, exc_info=error)
            self._outbox.put((work, error))
            return
        if outcome is not None:
            self._outbox.put((work, outcome))

    def _prepare(self, work: Work) -> Row | None:
        """A row that needs no answer computed; None once the engine has the request, or if the
        item waits for another.
        """
        if self._stopped.is_set():
            return None
        begin = time.perf_counter()
        source = work.item.part.read()
        if isinstance(source, BinaryFile):
            source = read_object(source)
        work.read_s = time.perf_counter() - begin
        begin = time.perf_counter()
        if not work.alone:
            row = self._look(work, source)
            self.occupancy.spent(work.read_s, time.perf_counter() - begin)
            if row is not None:
                return row
            if work.lead is None and work.row.sha256 is not None:
                return None  # it waits
            begin = time.perf_counter()
        message = user_message([source], work.row.question, self._asking.images.task)
        system = self._asking.system
        turns = (message,) if system is None else (Message("system", (system,)), message)
        request = self._vlm.prepare(turns, self._asking.images, self._asking.sampling)
        self.occupancy.spent(decoding_s=time.perf_counter() - begin)
        self._submit(work, request)
        return None

    def _look(self, work: Work, source: Any) -> Row | None:
        """Hash the picture. The row if it is blank or was answered; else its lead is noted."""
        found = self._hashed(work, source)
        if work.row.sha256 is None:
            return None
        if found is not None and self._asking.near_duplicates is not None:
            work.row = replace(work.row, dhash=f"{difference_hash(found):016x}")
        if found is not None and self._asking.skip_blank and is_blank(found):
            return replace(work.row, skipped="blank")
        claimed = self._claims.claim(work.row, work)
        if isinstance(claimed, Row):
            return work.row.copied(claimed)
        work.lead = claimed
        return None

    def _hashed(self, work: Work, source: Any) -> OpenedImage | Picture | None:
        """Note the source's hash in the row, if it can be known without fetching. Returns the
        picture, if it is one and is to be looked at.
        """
        looks = self._asking.skip_blank or self._asking.near_duplicates is not None
        most = self._asking.images.max_image_pixels
        found: OpenedImage | Picture | None = None
        if isinstance(source, EncodedImage):
            return None
        if isinstance(source, str) and not is_data_url(source):
            return None
        if isinstance(source, Video):
            if not isinstance(source.source, Path):
                return None
            sha256 = _hash_file(source.source)
        elif isinstance(source, Picture):
            found, sha256 = source, source.key
        else:
            data = unpack_data_url(source) if isinstance(source, str) else source
            if isinstance(data, bytes):
                sha256 = hashlib.sha256(data).hexdigest()
                if looks and not is_video(data):
                    found = open_image(data, most)
            else:
                found = open_image(data, most)
                sha256 = found.key
        work.row = replace(work.row, sha256=sha256)
        return found

    def _submit(self, work: Work, request: Request) -> None:
        """Wait for a place in the engine, then hand the request over."""
        work.request = request
        self._places.acquire()

        def listener(message: Event | Exception) -> None:
            if isinstance(message, Event):
                if message.result is None:
                    return
                self._leave()
                self._outbox.put((work, message.result))
            else:
                self._leave()
                self._outbox.put((work, message))

        while not self._stopped.is_set():
            try:
                self.occupancy.enter()
                work.ticket = self._vlm.scheduler.submit(request, listener)
                if self._stopped.is_set():
                    work.ticket.cancel()
                return
            except Overloaded:  # others use the model too
                self.occupancy.leave()
                time.sleep(_PAUSE_S)
            except BaseException:
                self._leave()
                raise

    def _leave(self) -> None:
        self._places.release()
        self.occupancy.leave()


def _hash_file(path: Path) -> str:
    """Raises ImageError."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ImageError(f"cannot read {spelled(path)}: {error.strerror or error}") from error
