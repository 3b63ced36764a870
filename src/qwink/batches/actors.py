"""A batch on Ray: actors on one or many machines hold a model each, this process keeps the rows.

Ray Data hands groups of items to the actors, with backpressure, and runs a group again whose actor
died. The rows of a group come in the order of its items, so that a group that is run again goes on
where it was.
"""

from __future__ import annotations

import json
import logging
import math
import os
import pickle
import socket
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from qwink.batches.claims import Claims
from qwink.batches.index import Index
from qwink.batches.items import Item, Part, failing
from qwink.batches.loaders import Loading, parts_of
from qwink.batches.rows import Row
from qwink.batches.runner import Asking, Runner, Work, Write
from qwink.errors import ImageError, OptionError, QwinkError
from qwink.extras import install_command
from qwink.runtime.models import load
from qwink.runtime.vlm import VLM
from qwink.runtime.waiting import Limits
from qwink.settings import without_ray_logs, without_usage_reports

LOCAL = "local"
_MOST_TOGETHER = 16  # items of a group
_CALLS = 2  # groups that an actor answers at once, so that its engine never waits for the next
_REACH_S = 10.0
_OBJECT_STORE_BYTES = 128 << 20  # of a local Ray: items and rows are small


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where the actors run, and how many.

    `address`: "local" starts Ray on this machine; "auto", HOST:PORT and ray://HOST:PORT name a
    cluster. `num_actors`: None for as many as there are processors and memory for. `load`: further
    arguments of `qwink.load`, such as `threads`, for each actor.
    """

    address: str = LOCAL
    num_actors: int | None = None
    load: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.address:
            raise OptionError("ray is empty; give local, auto, or the address of a cluster")
        if self.num_actors is not None and self.num_actors < 1:
            raise OptionError(f"ray_actors is {self.num_actors}; it must be 1 or more")

    def loading(
        self, model: Any, concurrency: int | None, near_duplicates: int | None
    ) -> dict[str, Any]:
        """The arguments of `qwink.load` in an actor. Raises OptionError for what Ray cannot do."""
        if isinstance(model, VLM):
            raise OptionError("each actor loads the model; with ray, name it or give its folder")
        if near_duplicates is not None:
            raise OptionError(
                "near duplicates cannot be looked for across actors; leave near_duplicates out, or "
                "ray"
            )
        limits = Limits() if concurrency is None else Limits(max_running=concurrency)
        threads = None
        if self.address == LOCAL and self.num_actors is not None:
            threads = max(1, len(os.sched_getaffinity(0)) // self.num_actors)
        return {"model": model, "limits": limits, "threads": threads, **self.load}


@dataclass(frozen=True, slots=True)
class Setup:
    """What an actor needs: arguments of `qwink.load`, what is asked, and how files are divided."""

    model: Mapping[str, Any]
    question: str | None
    system: str | None
    skip_blank: bool
    options: Mapping[str, Any]
    loading: Loading = field(default_factory=Loading)

    def asking(self, vlm: VLM) -> Asking:
        """Raises OptionError, ShapeError."""
        images, sampling = vlm.split_options(self.options)
        return Asking(self.question, self.system, images, sampling, None, self.skip_blank)


@dataclass(frozen=True, slots=True)
class Facts:
    """What one loaded model tells about all of them."""

    settings: Mapping[str, Any]
    num_threads: int
    memory_bytes: int


class Crew:
    """Actors that answer. Starts Ray, or connects to it, and leaves it when closed."""

    def __init__(self, cluster: Cluster, setup: Setup) -> None:
        """Raises OptionError where Ray is missing or does not answer, and what loading raises."""
        self._ray = _import_ray()
        self._cluster, self._setup = cluster, setup
        self._stack = ExitStack()
        self._connect()
        try:
            self.facts = self._facts()
            self.num_actors = cluster.num_actors or self._room()
        except BaseException:
            self.close()
            raise

    def answer(self, items: Sequence[Item]) -> Generator[Row, None, None]:
        """A row for each item, once. Raises QwinkError if the actors cannot go on."""
        if not items:
            return
        data = self._ray.data
        size = min(_MOST_TOGETHER, math.ceil(len(items) / (_CALLS * self.num_actors)))
        num_groups = math.ceil(len(items) / size)
        packed = data.from_items(
            [pack(item, self._ray.cloudpickle.dumps) for item in items],
            override_num_blocks=num_groups,
        )
        packed.context.enable_progress_bars = False
        packed.context.target_max_block_size = 1  # bytes: rows are not held back
        answers = packed.map_batches(
            Answers,
            fn_constructor_args=(self._setup,),
            batch_size=size,
            compute=data.ActorPoolStrategy(
                size=min(self.num_actors, num_groups),
                max_tasks_in_flight_per_actor=2 * _CALLS,
                max_concurrent_calls_per_actor=_CALLS,
                enable_true_multi_threading=True,
            ),
            num_cpus=self.facts.num_threads,
            memory=self.facts.memory_bytes,
        )
        try:
            for found in answers.iter_rows():
                yield Row.of_document(json.loads(found["row"]))
        except self._ray.exceptions.RayError as error:
            raise _cause(error) from error

    def close(self) -> None:
        """Stop the actors; a local Ray ends."""
        self._stack.close()

    def _connect(self) -> None:
        ray = self._ray
        if ray.is_initialized():  # the caller's own
            return
        options: dict[str, Any] = {"address": self._cluster.address}
        if self._cluster.address == LOCAL:
            without_usage_reports()
            without_ray_logs()
            options |= {
                "include_dashboard": False,
                "num_cpus": len(os.sched_getaffinity(0)),
                "object_store_memory": _OBJECT_STORE_BYTES,
            }
        else:
            _reach(self._cluster.address)
        try:
            ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise _nobody(self._cluster.address, error) from error
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        self._stack.callback(ray.shutdown)

    def _facts(self) -> Facts:
        """Load the model once, which also exports it if need be."""
        threads = self._setup.model.get("threads") or 1
        most = max((node["Resources"].get("CPU", 0) for node in self._ray.nodes()), default=0)
        if threads > most:  # Ray would wait for such a machine
            raise OptionError(
                f"an actor needs {threads} processors, and no machine of the cluster has more than "
                f"{most:g}; give fewer threads"
            )
        task = self._ray.remote(num_cpus=threads, max_retries=1)(describe)
        try:
            facts: Facts = self._ray.get(task.remote(self._setup))
        except self._ray.exceptions.RayError as error:
            raise _cause(error) from error
        return facts

    def _room(self) -> int:
        """Actors for which there are processors and memory."""
        there = self._ray.cluster_resources()
        by_processors = there.get("CPU", 1) // self.facts.num_threads
        by_memory = there.get("memory", math.inf) // self.facts.memory_bytes
        room = int(min(by_processors, by_memory))
        if room < 1:
            raise OptionError(
                f"an actor needs {self.facts.memory_bytes >> 20} MiB, and the cluster has "
                f"{int(there.get('memory', 0)) >> 20} MiB; choose a smaller recipe"
            )
        return room


class ActorRunner:
    """Runs one batch on a crew, as `runner.Runner` runs it on a model."""

    def __init__(self, crew: Crew, claims: Claims[Row], write: Write) -> None:
        self._crew, self._claims, self._write = crew, claims, write

    def run(self, items: Iterator[Item]) -> Generator[Row, None, None]:
        """The rows, written. Raises QwinkError, and OSError if a row cannot be written."""
        wanted = list(items)
        left = {item.id for item in wanted}
        with closing(self._crew.answer(wanted)) as rows:
            for row in rows:
                if row.id in left:
                    left.remove(row.id)
                    yield self._settled(row)
        if left:
            raise QwinkError(
                f"the actors gave no row for {len(left)} items; the same command asks again"
            )

    def limit(self) -> None:
        """What limited the run is not known."""

    def _settled(self, row: Row) -> Row:
        """The row, written; a copy if another actor answered about the same file before."""
        claimed = None
        if row.answer is not None and row.sha256 is not None:
            claimed = self._claims.claim(row, row)
        if isinstance(claimed, Row):
            row, claimed = replace(row, usage={}, timings={}).copied(claimed), None
        self._claims.settle(row, self._write(row), claimed)
        return row


class Answers:
    """An actor: a model that stays loaded."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._vlm = load(**setup.model)
        self._asking = setup.asking(self._vlm)

    def __call__(self, group: Mapping[str, Any]) -> Iterator[dict[str, list[bytes]]]:
        """Rows in the order of the items."""
        items = [unpack(values, self._setup.loading) for values in group["item"]]
        for row in _answered(self._vlm, self._asking, items):
            yield {"row": [row.line()]}


def describe(setup: Setup) -> Facts:
    """Load a model and tell what it is. Raises what `qwink.load` raises, and ShapeError."""
    import resource

    from qwink.batches.batch import settings_of

    with load(**setup.model) as vlm:
        settings = settings_of(vlm, setup.asking(vlm), setup.options)
        threads = setup.model.get("threads") or len(os.sched_getaffinity(0))
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        return Facts(settings, threads, resident + vlm.memory.total_bytes)


def pack(item: Item, dumps: Callable[[Any], bytes]) -> dict[str, bytes]:
    """An item for another process: by its path where it has one. `dumps` is cloudpickle's."""
    part = item.part.file or item.part
    return {"item": dumps((item.id, item.source, item.question, item.part.place, part))}


def unpack(values: bytes, loading: Loading) -> Item:
    """The inverse of `pack`, on the machine of an actor."""
    item_id, source, question, place, part = pickle.loads(values)
    if isinstance(part, str):
        part = _found(part, place, loading)
    return Item(item_id, source, part, question)


def _found(path: str, place: str, loading: Loading) -> Part:
    """The part of a file here. One that fails if the file is not on this machine."""
    if not os.path.lexists(path):
        return failing(
            ImageError(
                f"no such file on {socket.gethostname()}: {path!r}; put it where all machines of "
                "the cluster find it by this path"
            )
        )
    try:
        found = next((part for part in _parts(path, loading) if part.place == place), None)
    except QwinkError as error:
        return failing(error)
    return found or failing(ImageError(f"{path!r} has changed; run the batch again"))


@lru_cache(maxsize=4)
def _parts(path: str, loading: Loading) -> tuple[Part, ...]:
    return tuple(parts_of(path, loading))


def _answered(vlm: VLM, asking: Asking, items: list[Item]) -> Iterator[Row]:
    """The rows of a group, answered together, in its order."""
    waiting: dict[str, Row] = {}
    with closing(Index()) as index:
        count = iter(range(len(items)))
        claims: Claims[Work] = Claims(index)
        runner = Runner(vlm, asking, None, claims, lambda _: next(count))
        with closing(runner.run(iter(items))) as rows:
            for item in items:
                while item.id not in waiting:
                    row = next(rows)
                    waiting[row.id] = row
                yield waiting.pop(item.id)


def _cause(error: BaseException) -> Exception:
    """What went wrong in the actor, as qwink raises it."""
    seen: BaseException | None = error
    while seen is not None:
        inner = getattr(seen, "cause", None) or seen.__cause__
        if isinstance(inner, QwinkError):
            return inner
        seen = inner if isinstance(inner, BaseException) else None
    text = str(error).strip().splitlines()
    return QwinkError(f"the actors on Ray failed: {text[-1] if text else type(error).__name__}")


def _reach(address: str) -> None:
    """Raises OptionError if nothing listens at HOST:PORT; Ray itself tries for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        try:
            socket.create_connection((host.strip("[]"), int(port)), _REACH_S).close()
        except (OSError, OverflowError) as error:
            raise _nobody(address, error) from error


def _nobody(address: str, error: Exception) -> OptionError:
    return OptionError(
        f"no Ray cluster answers at {address!r}: {error}; check the address, or start Ray here by "
        "--ray local"
    )


def _import_ray() -> Any:
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise OptionError(f"--ray needs Ray; install it: {install_command('ray')}") from error
    return ray
