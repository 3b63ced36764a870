"""The rows on disk: appended one by one, found again by the next run, never mixed with others.

`answers.jsonl` holds the rows itself. Beside it lies the folder `answers.jsonl.batch` with the
settings that the rows were made with and a lock. For `.csv` and `.parquet` that folder also has the
rows as they come (`rows.jsonl`), and the file is made of them at the end; see `tabular`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from qwink.batches.rows import Row
from qwink.batches.tabular import SUFFIXES, write_table
from qwink.errors import OptionError

SYNC_S = 1.0  # a power cut loses the rows of this long at most; a killed process loses none
VERSION = 1


class Ledger:
    """The output file, held by this process from `open` to `close`. Not safe for threads."""

    def __init__(self, out: Path, settings: Mapping[str, Any]) -> None:
        """Raises OptionError for a file name of another kind, and where pyarrow is missing."""
        suffix = out.suffix.lower()
        if suffix not in (".jsonl", *SUFFIXES):
            raise OptionError(f"{out}: the output is .jsonl, .csv or .parquet; name it so, or -")
        SUFFIXES.get(suffix, lambda: None)()
        self.out = out
        self._folder = out.with_name(out.name + ".batch")
        self.rows_file = self._folder / "rows.jsonl" if suffix in SUFFIXES else out
        self._settings = {"version": VERSION, **settings}
        self._lock = FileLock(self._folder / "lock", timeout=0)
        self._file: int | None = None
        self._size = 0
        self._synced_at = time.monotonic()

    def open(self) -> None:
        """Take the file. Cuts off a last line that was not written whole.

        Raises OptionError if another process has it, if it was made with other settings, or if it
        is no output of a batch.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire()
        except Timeout:
            raise OptionError(
                f"{self.out}: another qwink batch is writing it; wait for it or choose another "
                "--out"
            ) from None
        try:
            self._check_settings()
            _cut_torn_line(self.rows_file)
        except BaseException:
            self._lock.release()
            raise

    def rows(self) -> Iterator[Row]:
        """The rows in the file. Raises OptionError for a line that is no row."""
        return read_rows(self.rows_file)

    def keep(self, wanted: Callable[[int, Row], bool]) -> None:
        """Remove the other rows. `wanted` is asked with each row's place, from 0."""
        self._close_file()
        temporary = self.rows_file.with_name(self.rows_file.name + ".partial")
        with temporary.open("wb") as file:
            for place, row in enumerate(self.rows()):
                if wanted(place, row):
                    file.write(row.line())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.rows_file)

    def append(self, row: Row) -> None:
        """Write a row. Raises OSError, and then the file is as before."""
        if self._file is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
            self._file = os.open(self.rows_file, flags, 0o666)
            self._size = os.fstat(self._file).st_size
        line = row.line()
        try:
            written = 0
            while written < len(line):
                written += os.write(self._file, line[written:])
        except OSError:
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(line)
        if time.monotonic() - self._synced_at > SYNC_S:
            self._sync()

    def close(self) -> None:
        """Write what is still to be written to the disk, and the table if it is one."""
        try:
            self._close_file()
            if self.rows_file != self.out and self.rows_file.exists():
                write_table(self.rows(), self.out)
        finally:
            self._lock.release()

    def _close_file(self) -> None:
        if self._file is not None:
            self._sync()
            os.close(self._file)
            self._file = None

    def _sync(self) -> None:
        assert self._file is not None
        os.fsync(self._file)
        self._synced_at = time.monotonic()

    def _check_settings(self) -> None:
        file = self._folder / "settings.json"
        has_rows = self.rows_file.exists() and self.rows_file.stat().st_size > 0
        try:
            before = json.loads(file.read_text("utf-8"))
        except (OSError, ValueError):
            before = None
        if before is None and (has_rows or (self.out.exists() and self.out.stat().st_size > 0)):
            raise OptionError(
                f"{self.out} exists, and {file} does not say how it was made; choose another "
                "--out, or remove it"
            )
        if has_rows and before != self._settings:
            raise OptionError(
                f"{self.out} was made with other settings: {_differences(before, self._settings)}; "
                f"repeat that command, choose another --out, or remove {self.out} and "
                f"{self._folder}"
            )
        _write_whole(file, json.dumps(self._settings, indent=2, ensure_ascii=True).encode())


def read_rows(file: Path) -> Iterator[Row]:
    """The rows of a file of JSON lines. Raises OptionError for a line that is no row."""
    if not file.exists():
        return
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield Row.of_document(json.loads(line))
            except (LookupError, TypeError, ValueError, AttributeError):
                raise OptionError(
                    f"{file}: line {number} is no row of qwink batch; remove that line"
                ) from None


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    old, new = _flat(before), _flat(now)
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return ", ".join(f"{name} {old.get(name)!r}, now {new.get(name)!r}" for name in names)


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    options = settings.get("options")
    rest = {name: value for name, value in settings.items() if name != "options"}
    return rest | (options if isinstance(options, dict) else {})


def _cut_torn_line(file: Path) -> None:
    """Cut off what follows the last line break."""
    if not file.exists():
        return
    with file.open("r+b") as lines:
        end = lines.seek(0, os.SEEK_END)
        position = end
        while position > 0:
            start = max(0, position - 65536)
            lines.seek(start)
            found = lines.read(position - start).rfind(b"\n")
            if found >= 0:
                position = start + found + 1
                break
            position = start
        if position < end:
            lines.truncate(position)


def _write_whole(file: Path, data: bytes) -> None:
    """Replace a file, so that it is either the old one or the new one."""
    temporary = file.with_name(file.name + ".partial")
    with temporary.open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    os.replace(temporary, file)
