"""`qwink batch`: a question about each of many pictures, into one file."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterable
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from qwink.cli import options as shared
from qwink.cli import shapes
from qwink.cli.console import Bar, as_utf8, format_seconds, on_terminal, remark, spell_options
from qwink.errors import OptionError

if TYPE_CHECKING:
    from qwink.batches.progress import Progress
    from qwink.batches.rows import Row

SOME_FAILED = 3  # exit code: there are rows with an error
_EVERY_S = 10.0  # between lines about the progress where stderr is no terminal


def batch(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE",
            help="Pictures, videos, folders, patterns ('scans/*.png'), tables of paths (.jsonl, "
            ".csv, .parquet, .txt); - reads a list of paths from stdin.",
        ),
    ] = None,
    question: shared.Question = None,
    out: Annotated[
        str,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="A file .jsonl, .csv or .parquet, which a later run continues; - prints JSON "
            "lines.",
        ),
    ] = "-",
    task: shared.Task = "auto",
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="Go into the folders of folders.")
    ] = False,
    column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Column of a table with the paths; by default image, path, file, ... whichever "
            "is there.",
        ),
    ] = None,
    question_column: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Column with a question for each row, where there is one."
        ),
    ] = "question",
    id_column: Annotated[
        str, typer.Option(metavar="NAME", help="Column with an id for each row, if there is one.")
    ] = "id",
    limit: Annotated[
        int | None, typer.Option(metavar="N", help="Stop after N rows; the next run goes on.")
    ] = None,
    where: Annotated[
        Literal["new", "errors"],
        typer.Option(help="Ask about pictures without a row, or about those with an error only."),
    ] = "new",
    retry_errors: Annotated[
        bool, typer.Option("--retry-errors", help="Also ask again where a row has an error.")
    ] = False,
    concurrency: Annotated[
        int | None, typer.Option(metavar="N", help="Answers under way at once. [8]")
    ] = None,
    near_duplicates: Annotated[
        int | None,
        typer.Option(
            metavar="D",
            help="Give pictures that look alike the answer of the first: those whose 64-bit "
            "difference hashes differ in at most D bits. By default only identical files.",
        ),
    ] = None,
    skip_blank: Annotated[
        bool, typer.Option("--skip-blank", help="Do not ask about blank pictures.")
    ] = False,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Answer on Ray, with a model in each of several actors: local starts Ray on this "
            "machine; auto, HOST:PORT or ray://HOST:PORT name a cluster.",
        ),
    ] = None,
    ray_actors: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="With --ray: how many actors. [as many as there are processors and memory for]",
        ),
    ] = None,
    schema: shapes.Schema = None,
    choices: shapes.Choices = None,
    regex: shapes.Regex = None,
    grammar: shapes.Grammar = None,
    model: shared.Model = None,
    engine: shared.Engine = None,
    recipe: shared.Recipe = None,
    device: shared.Device = None,
    dtype: shared.Dtype = None,
    quantize: shared.Quantize = None,
    system: shared.System = None,
    max_tokens: shared.MaxTokens = None,
    temperature: shared.Temperature = None,
    top_p: shared.TopP = None,
    top_k: shared.TopK = None,
    min_p: shared.MinP = None,
    repetition_penalty: shared.RepetitionPenalty = None,
    seed: shared.Seed = None,
    stop: shared.Stop = None,
    min_pixels: shared.MinPixels = None,
    max_pixels: shared.MaxPixels = None,
    max_image_pixels: shared.MaxImagePixels = None,
    strips: shared.Strips = None,
    fps: shared.Fps = None,
    num_frames: shared.NumFrames = None,
    min_frames: shared.MinFrames = None,
    max_frames: shared.MaxFrames = None,
    start: shared.Start = None,
    end: shared.End = None,
    every: shared.Every = None,
    context: shared.Context = None,
    threads: shared.Threads = None,
    speculate: shared.Speculate = None,
    store: shared.Store = None,
    store_ttl: shared.StoreTtl = None,
) -> None:
    """Ask about each of many pictures, several at once, and write a row for each.

    Run the same command again to go on after an interruption, or when there are more pictures.
    Pictures that cannot be used are rows with an error; the exit code is 3 then.

    \b
    Examples:
      qwink batch scans -q "What is the total?" --out totals.csv
      qwink batch invoices --schema invoice.json -q "Read the invoice." --out invoices.jsonl
      qwink batch 'photos/*.jpg' --task describe --out captions.jsonl --limit 100
      qwink batch questions.jsonl --out answers.parquet
      qwink batch camera.mp4 --every 5s -q "Is the gate open?" --out gate.csv
      qwink batch s3://scans/2026 -q "What is the total?" --out totals.parquet --ray auto
      find . -name '*.png' | qwink batch - -q "Is this a chart?" | jq .answer
    """
    asked: dict[str, Any] = {
        "task": task,
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "seed": seed,
        "stop": [as_utf8(text) or "" for text in stop] if stop else None,
        "min_pixels": min_pixels,
        "max_pixels": max_pixels,
        "max_image_pixels": max_image_pixels,
        "strips": shared.strips_of(strips),
        "fps": fps,
        "num_frames": num_frames,
        "min_frames": min_frames,
        "max_frames": max_frames,
        "start": start,
        "end": end,
    }
    engine_options: dict[str, Any] = {
        "engine": engine,
        "recipe": recipe,
        "device": device,
        "dtype": dtype,
        "quantize": quantize,
        "threads": threads,
    }
    if where == "errors" and out == "-":
        raise OptionError("--where errors asks again about rows of a file; name it by --out")
    every_s = None if every is None else shared.seconds(every, "--every")
    lines = _stdin_lines() if sources and "-" in sources else None

    from qwink.batches.actors import Cluster
    from qwink.batches.batch import batch as run
    from qwink.batches.batch import check, loading_of
    from qwink.batches.sources import Sources
    from qwink.batches.tables import Columns
    from qwink.cache.address import StoreOptions
    from qwink.cli.loading import load_model
    from qwink.runtime.waiting import Limits

    columns = Columns(column, question_column, id_column)
    given = {name: value for name, value in asked.items() if value is not None}
    given |= shapes.shape_options(schema, choices, regex, grammar)
    file = None if out == "-" else out
    loading_of(every_s, given)
    wanted = Sources(tuple(sources or ()), recursive, columns, lines)
    check(wanted, given, file, where, limit, concurrency, near_duplicates)
    limits = Limits() if concurrency is None else Limits(max_running=concurrency)
    cluster, loaded = None, None
    if ray is not None:
        loading = engine_options | {"context": context, "speculate": speculate}
        loading["shared"] = None if store is None else StoreOptions(store, store_ttl)
        chosen = {name: value for name, value in loading.items() if value is not None}
        cluster = Cluster(ray, ray_actors, chosen)
    elif ray_actors is not None:
        raise OptionError("--ray-actors is for --ray; give both")
    else:
        loaded = load_model(
            model,
            engine_options,
            context,
            limits,
            hint=on_terminal(),
            speculate=speculate,
            store=store,
            store_ttl=store_ttl,
        )
    with (
        loaded or nullcontext(),
        _Report(out) as report,
        closing(
            run(
                list(sources or ()),
                (question or "").strip() or None,
                model=loaded or model,
                ray=cluster,
                out=file,
                system=system,
                recursive=recursive,
                columns=columns,
                lines=lines,
                where="new+errors" if retry_errors and where == "new" else where,
                limit=limit,
                concurrency=concurrency,
                near_duplicates=near_duplicates,
                skip_blank=skip_blank,
                every_s=every_s,
                progress=report.show,
                **given,
            )
        ) as rows,
    ):
        report.follow(rows)
    report.summary()
    if report.failed:
        raise SystemExit(SOME_FAILED)


def _stdin_lines() -> Iterable[str]:
    if sys.stdin is None or sys.stdin.isatty():
        raise OptionError("- reads a list of paths from stdin; pipe one in: ls | qwink batch - ...")
    return io.TextIOWrapper(sys.stdin.buffer, "utf-8", errors="surrogateescape")


class _Report(Bar):
    """The progress on stderr: a bar, or without a terminal a line now and then; then a summary."""

    def __init__(self, out: str) -> None:
        self._out = out
        self._last: Progress | None = None
        self._said_at = time.monotonic()
        self._task: Any = None

    @property
    def failed(self) -> bool:
        """Whether there are rows with an error."""
        return self._last is not None and bool(self._last.errors or self._last.failed_before)

    def follow(self, rows: Iterable[Row]) -> None:
        """Take all rows; print them if there is no file. Says how to go on if interrupted."""
        try:
            for row in rows:
                if self._out == "-":
                    typer.echo(row.line(), nl=False)
        except (KeyboardInterrupt, SystemExit):
            self._stop_bar()
            done = self._last.done if self._last else 0
            go_on = "" if self._out == "-" else f" in {self._out}; the same command goes on"
            remark(f"stopped after {_number(done, 'row')}{go_on}")
            raise

    def show(self, progress: Progress) -> None:
        self._last = progress
        if not on_terminal():
            if time.monotonic() - self._said_at > _EVERY_S:
                self._said_at = time.monotonic()
                remark(_describe(progress))
            return
        if self._task is None:
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

            self._open(BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
            self._task = self._bar.add_task("", total=None)
        assert self._bar is not None
        self._bar.update(
            self._task,
            completed=progress.done,
            total=progress.total,
            description=_describe(progress),
        )

    def summary(self) -> None:
        """What was done, in lines on stderr."""
        last = self._last
        if last is None:
            return
        there = f"; rows from before: {last.before}" if last.before else ""
        if not last.done:
            remark(f"nothing to do{there}")
        else:
            took = format_seconds(last.elapsed_s)
            parts = [f"{_number(last.done, 'row')} in {took} ({last.rate:.1f}/s)"]
            parts += [_number(last.errors, "error")] if last.errors else []
            parts += [f"{_number(last.copied, 'answer')} of equal pictures"] if last.copied else []
            parts += [f"{last.skipped} blank"] if last.skipped else []
            remark(", ".join(parts) + there)
        if last.repeated:
            items = _number(last.repeated, "item")
            remark(f"left out {items} with the same id as another one of this run")
        if self.failed and self._out != "-":
            num_failed = last.errors + last.failed_before
            remark(f"rows with an error: {num_failed}; --retry-errors asks about them again")
        if last.limit is not None:
            remark(spell_options(str(last.limit)))

    def _stop_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _describe(progress: Progress) -> str:
    total = "" if progress.total is None else f" of {progress.total}"
    errors = f", {_number(progress.errors, 'error')}" if progress.errors else ""
    return f"{progress.done}{total}, {progress.rate:.1f}/s{errors}"
