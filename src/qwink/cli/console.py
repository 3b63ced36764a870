"""Shared by all commands: messages on stderr, exit codes, progress bars, formatting."""

from __future__ import annotations

import io
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import typer

from qwink.errors import OptionError, QwinkError

if TYPE_CHECKING:
    from qwink.export.identity import Progress

# Copies of values in the runtime, which imports NumPy; help must not. A test compares them.
TaskName: TypeAlias = Literal["auto", "ocr", "document", "describe", "locate", "frame"]
RecipeName: TypeAlias = Literal["exact", "quality", "balanced", "fast", "small"]
LayoutName: TypeAlias = Literal["native", "onnxruntime"]
EngineName: TypeAlias = Literal["auto", "onnx", "torch"]
DtypeName: TypeAlias = Literal["auto", "float32", "float16", "bfloat16"]
SpeculateName: TypeAlias = Literal["auto", "off"]
QuantizeName: TypeAlias = Literal["int8"]

# Control characters. A picture could make the model print terminal escape sequences.
CONTROLS = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
# Options of the library whose names in messages the command line spells differently.
_OPTION_NAMES = re.compile(
    r"(?<![\w-])(?:max_image_pixels|max_images|max_pixels|min_pixels|max_tokens|repetition_penalty"
    r"|near_duplicates"
    r"|top_p|top_k|min_p)(?!\w)"
)


def remark(text: str) -> None:
    """Print one line to stderr."""
    typer.echo(f"qwink: {text}", err=True)


def as_utf8(text: str | None) -> str | None:
    """An argument as text: where the locale has no UTF-8, Python leaves bytes as surrogates."""
    if text is None or text.isascii():
        return text
    try:
        return os.fsencode(text).decode("utf-8")
    except UnicodeError:
        return text


def spell_options(text: str) -> str:
    """A message of the library with its options as the command line spells them."""
    return _OPTION_NAMES.sub(lambda match: "--" + match[0].replace("_", "-"), text)


def on_terminal() -> bool:
    """Whether stderr is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def exit_codes() -> Iterator[None]:
    """Turn exceptions of a command into one line on stderr and an exit code."""
    try:
        yield
    except OptionError as error:
        remark(_one_line(error))
        raise SystemExit(2) from None
    except QwinkError as error:
        remark(_one_line(error))
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        if on_terminal():
            typer.echo(err=True)  # start a new line after the terminal's ^C
        raise SystemExit(128 + signal.SIGINT) from None
    except BrokenPipeError:  # the reader closed the pipe, such as `| head`
        _forget_output()
        raise SystemExit(128 + signal.SIGPIPE) from None
    except OSError as error:  # such as a full disk
        _forget_output()
        where = f"{error.filename}: " if error.filename else ""
        remark(f"{where}{error.strerror or error}")
        raise SystemExit(1) from None
    except MemoryError:
        remark("not enough memory; use a smaller model, recipe small or smaller pictures")
        raise SystemExit(1) from None


def _one_line(error: Exception) -> str:
    return spell_options(" ".join(str(error).split()))


def _forget_output() -> None:
    """Replace stdout, since Python flushes it at exit and would report the same error again."""
    sys.stdout = io.StringIO()


def folder_size(folder: Path) -> int:
    """Total size of the files in a folder, in bytes."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def format_bytes(num_bytes: int) -> str:
    """A size in decimal units, such as 12 MB or 1.6 GB."""
    size, unit = float(num_bytes), "B"
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5 or unit == "GB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if size >= 10 or unit == "B" else f"{size:.1f} {unit}"


def format_seconds(seconds: float) -> str:
    """A duration, such as 0.42 s, 3.1 s or 75 s."""
    digits = 2 if seconds < 1 else 1 if seconds < 10 else 0
    return f"{seconds:.{digits}f} s"


class Bar:
    """A context manager that shows a progress bar on stderr, from `_open` to the end."""

    _bar: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _open(self, *columns: Any) -> None:
        """Show the bar with these columns of rich, or with its defaults."""
        from rich.console import Console
        from rich.progress import Progress

        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._bar.start()


class ExportProgress(Bar):
    """Shows the progress of an export on stderr: a bar, or without a terminal one line.

    Shows nothing if there is no export. Use it as a context manager; pass the instance as the
    export's progress callback.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.started: float | None = None
        self._task: Any = None

    def __call__(self, progress: Progress) -> None:
        if self.started is None:
            self.started = time.perf_counter()
            self._start()
        if self._bar is not None:
            self._bar.update(
                self._task, completed=progress.done, total=progress.total, part=progress.part
            )

    def _start(self) -> None:
        if not on_terminal():
            remark(f"exporting {self.name}")
            return
        from rich.markup import escape
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn

        self._open(
            TextColumn(f"exporting {escape(self.name)}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[part]}"),
        )
        self._task = self._bar.add_task("", part="")

    def finish(self, folder: Path) -> None:
        """Print size and duration of the export, if there was one."""
        if self.started is not None:
            duration = format_seconds(time.perf_counter() - self.started)
            remark(f"exported to {folder}: {format_bytes(folder_size(folder))} in {duration}")
