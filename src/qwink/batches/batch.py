"""`qwink.batch`: one question about many pictures, or a question about each."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, Unpack

from qwink.batches.actors import ActorRunner, Cluster, Crew, Setup
from qwink.batches.claims import Claims, Where
from qwink.batches.index import Index
from qwink.batches.items import Item
from qwink.batches.ledger import Ledger
from qwink.batches.loaders import Loading
from qwink.batches.progress import Counter, Progress
from qwink.batches.rows import Row
from qwink.batches.runner import Asking, Runner, Write
from qwink.batches.sources import Sources
from qwink.batches.tables import Columns
from qwink.engine.sampler import validate
from qwink.errors import OptionError
from qwink.inputs.images import MAX_IMAGE_PIXELS
from qwink.runtime.models import load
from qwink.runtime.options import SHAPE_NAMES, AskKeywords, split
from qwink.runtime.vlm import VLM
from qwink.runtime.waiting import Limits
from qwink.types import ImageSource, SamplingParams

MakeRunner: TypeAlias = Callable[[Claims[Any], Write], Runner | ActorRunner]
WHERE: tuple[Where, ...] = ("new", "errors", "new+errors")


def batch(
    sources: ImageSource | Mapping[str, Any] | Iterable[Any],
    question: str | None = None,
    *,
    model: VLM | str | Path | None = None,
    out: str | os.PathLike[str] | None = None,
    system: str | None = None,
    recursive: bool = False,
    columns: Columns | None = None,
    lines: Iterable[str] | None = None,
    where: Where = "new",
    limit: int | None = None,
    concurrency: int | None = None,
    near_duplicates: int | None = None,
    skip_blank: bool = False,
    every_s: float | None = None,
    progress: Callable[[Progress], None] | None = None,
    ray: Cluster | str | None = None,
    **options: Unpack[AskKeywords],
) -> Generator[Row, None, None]:
    """Ask about each of many pictures, several at once. Yields a row for each as it is answered.

    `sources` is one or several of: paths of pictures, videos, folders (`recursive`: with theirs),
    patterns (scans/*.png) and tables (.jsonl, .csv, .parquet, .txt), pictures in memory, and
    mappings with "image" and perhaps "question" and "id". "-" stands for `lines`, a list of paths.
    A picture that cannot be used is a row with an `error`.

    `out` (.jsonl, .csv, .parquet) also writes the rows to a file. The same call goes on where an
    earlier one stopped: items that have a row are left out; `where` "errors" takes those whose row
    has an error, "new+errors" both. Closing the generator stops early.

    `model` is a loaded model, or what `qwink.load` takes. Identical files are answered once;
    `near_duplicates` takes pictures for equal whose 64-bit difference hashes differ in that many
    bits or fewer; `skip_blank` leaves out blank pictures. With `every_s`, each moment of a video is
    an item, a picture of task "frame", one every so many seconds; otherwise a video is one item.
    `limit` bounds the rows of this call, `concurrency` the answers under way at once. `progress`
    is called with each row. `options` are those of pictures and of answers.

    `ray` answers on Ray, with actors that each load `model` by its name: "local", the address of a
    cluster, or a `qwink.batches.actors.Cluster`. `near_duplicates` cannot be looked for there.

    Raises OptionError, ShapeError and what `qwink.load` raises at once; EngineStopped and OSError
    while it yields.

    ```python
    rows = qwink.batch(["examples/sign.png", "examples/receipt-line.png"], model=vlm, task="ocr")
    print(sorted(row.answer for row in rows))  # ['Exit 7B', 'Total 42.50']
    ```
    """
    loading = loading_of(every_s, options)
    if every_s is not None and options.get("task", "auto") == "auto":
        options = {**options, "task": "frame"}
    given = Sources(_as_tuple(sources), recursive, columns or Columns(), lines, loading)
    check(given, options, out, where, limit, concurrency, near_duplicates)
    with ExitStack() as stack:
        make: MakeRunner
        if ray is not None:
            cluster = ray if isinstance(ray, Cluster) else Cluster(ray)
            loaded = cluster.loading(model, concurrency, near_duplicates)
            setup = Setup(loaded, question, system, skip_blank, options, loading)
            crew = stack.enter_context(closing(Crew(cluster, setup)))
            settings = crew.facts.settings
            make = partial(ActorRunner, crew)
        else:
            if isinstance(model, VLM):
                vlm = model
            else:
                limits = Limits() if concurrency is None else Limits(max_running=concurrency)
                vlm = stack.enter_context(load(model, limits=limits))
            images, sampling = vlm.split_options(options)
            asking = Asking(question, system, images, sampling, near_duplicates, skip_blank)
            settings = settings_of(vlm, asking, options)
            make = partial(Runner, vlm, asking, concurrency)
        ledger = None
        if out is not None:
            ledger = Ledger(Path(out), settings)
            ledger.open()
            stack.callback(ledger.close)
        kept = stack.pop_all()
    return _rows(given, make, near_duplicates, ledger, where, limit, progress, kept)


def loading_of(every_s: float | None, options: Mapping[str, Any]) -> Loading:
    """How files are divided into items. Raises OptionError."""
    if every_s is None:
        return Loading()
    if not (every_s > 0 and math.isfinite(every_s)):
        raise OptionError(f"every is {every_s:g} s; it must be above 0")
    for name in ("fps", "num_frames", "min_frames", "max_frames"):
        if name in options:
            raise OptionError(f"every and {name} exclude each other; give one of them")
    limit = options.get("max_image_pixels", MAX_IMAGE_PIXELS)
    return Loading(every_s, options.get("start"), options.get("end"), limit)


def settings_of(vlm: VLM, asking: Asking, options: Mapping[str, Any]) -> dict[str, Any]:
    """What all rows of a file have in common."""
    shape = asking.sampling.shape
    others = {name: options[name] for name in sorted(options) if name not in SHAPE_NAMES}
    return {
        "model": vlm.name,
        "artifact": vlm.engine.artifact_id,
        "question": asking.question,
        "system": asking.system,
        "near_duplicates": asking.near_duplicates,
        "skip_blank": asking.skip_blank,
        "shape": None if shape is None else f"{shape.kind}: {shape.source}",
        "options": {name: _plain(value) for name, value in others.items()},
    }


def _rows(
    sources: Sources,
    make: MakeRunner,
    near_duplicates: int | None,
    ledger: Ledger | None,
    where: Where,
    limit: int | None,
    progress: Callable[[Progress], None] | None,
    stack: ExitStack,
) -> Generator[Row, None, None]:
    with stack:
        index = stack.enter_context(closing(Index()))
        claims: Claims[Any] = Claims(index, near_duplicates)
        num_rows = 0
        for row in ledger.rows() if ledger else ():
            claims.load(row, num_rows)
            num_rows += 1
        counter = Counter(limit)
        stack.callback(counter.stop)
        if progress and sources.repeatable and where == "new":
            counter.count(sources)

        def write(row: Row) -> int:
            nonlocal num_rows
            if ledger:
                ledger.append(row)
            num_rows += 1
            return num_rows - 1

        runner = make(claims, write)
        rows = runner.run(_wanted(sources, claims, where, limit, counter))
        stack.callback(partial(_drop_replaced, ledger, index))
        with closing(rows):
            for row in rows:
                counter.add(row)
                if progress:
                    progress(counter.progress())
                yield row
        if progress:
            progress(counter.progress(runner.limit()))


def _wanted(
    sources: Iterable[Item], claims: Claims[Any], where: Where, limit: int | None, counter: Counter
) -> Iterator[Item]:
    taken = 0
    if limit == 0:
        return
    for item in sources:
        verdict = claims.wants(item.id, where)
        if verdict in ("before", "failed"):
            counter.before += 1
            counter.failed_before += verdict == "failed"
        elif verdict == "repeated":
            counter.repeated += 1
        else:
            yield item
            taken += 1
            if taken == limit:
                return


def _drop_replaced(ledger: Ledger | None, index: Index) -> None:
    """Remove the errors from the file that another row of the same item follows."""
    if ledger and index.num_replaced:
        ledger.keep(lambda place, row: index.place(row.id) == place)


def _as_tuple(sources: Any) -> tuple[Any, ...]:
    """One source, or several in a list, a tuple, a generator, ..."""
    several = isinstance(sources, list | tuple) or (
        isinstance(sources, Iterator) and not hasattr(sources, "read")
    )
    return tuple(sources) if several else (sources,)


def check(
    sources: Sources,
    options: Mapping[str, Any],
    out: str | os.PathLike[str] | None,
    where: str,
    limit: int | None,
    concurrency: int | None,
    near_duplicates: int | None,
) -> None:
    """Raises OptionError for what can be seen to be wrong before a model is loaded."""
    sources.check()
    _, sampling, _ = split(options, ())
    validate(SamplingParams(**sampling))
    if out is not None:
        Ledger(Path(out), {})
    if where not in WHERE:
        raise OptionError(f"where is {where!r}; it must be {', '.join(WHERE)}")
    if limit is not None and limit < 1:
        raise OptionError(f"limit is {limit}; it must be 1 or more")
    if concurrency is not None and concurrency < 1:
        raise OptionError(f"concurrency is {concurrency}; it must be 1 or more")
    if near_duplicates is not None and not 0 <= near_duplicates <= 32:
        raise OptionError(f"near_duplicates is {near_duplicates}; it must be 0 to 32 bits")


def _plain(value: Any) -> Any:
    """An option's value as JSON keeps it."""
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value if isinstance(value, str | int | float | None) else repr(value)
