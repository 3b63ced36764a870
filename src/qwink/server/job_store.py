"""Files and batches of clients: contents as files, the rest in SQLite, in one folder.

It survives a restart and `kill -9`: what was committed is there. Each file and batch belongs to an
owner, and is invisible to others.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

Running = Literal["validating", "in_progress", "finalizing", "cancelling"]
Status = Running | Literal["completed", "failed", "expired", "cancelled"]
UNFINISHED: tuple[Running, ...] = get_args(Running)

_TABLES = """
CREATE TABLE IF NOT EXISTS files (
    number INTEGER PRIMARY KEY, id TEXT UNIQUE, owner TEXT, purpose TEXT, filename TEXT,
    bytes INTEGER, created_at INTEGER, expires_at INTEGER);
CREATE TABLE IF NOT EXISTS batches (
    number INTEGER PRIMARY KEY, id TEXT UNIQUE, owner TEXT, endpoint TEXT, input_file_id TEXT,
    completion_window TEXT, metadata TEXT, keep_s INTEGER, status TEXT, errors TEXT,
    total INTEGER DEFAULT 0, completed INTEGER DEFAULT 0, failed INTEGER DEFAULT 0,
    output_file_id TEXT, error_file_id TEXT, created_at INTEGER, expires_at INTEGER,
    in_progress_at INTEGER, finalizing_at INTEGER, completed_at INTEGER, failed_at INTEGER,
    expired_at INTEGER, cancelling_at INTEGER, cancelled_at INTEGER);
CREATE TABLE IF NOT EXISTS results (
    batch_id TEXT, line INTEGER, ok INTEGER, text TEXT, PRIMARY KEY (batch_id, line)
    ) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a client. Times in seconds since 1970."""

    number: int
    id: str
    owner: str
    purpose: str
    filename: str
    bytes: int
    created_at: int
    expires_at: int | None


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch. `keep_s`: how long its output files are kept, None for ever."""

    number: int
    id: str
    owner: str
    endpoint: str
    input_file_id: str
    completion_window: str
    metadata: dict[str, str] | None
    keep_s: int | None
    status: Status
    errors: list[dict[str, Any]] | None
    total: int
    completed: int
    failed: int
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    expires_at: int
    in_progress_at: int | None
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None


class JobStore:
    """The files and batches in a folder. Safe for threads; for one process."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        """Creates the folder, for this user only. Raises OSError, sqlite3.Error."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder, self._clock = folder, clock
        self._lock = threading.RLock()
        self._database = sqlite3.connect(
            folder / "jobs.sqlite3", check_same_thread=False, isolation_level=None
        )
        self._database.row_factory = sqlite3.Row
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.executescript(_TABLES)
        known = {row["id"] for row in self._select("SELECT id FROM files")}
        for path in folder.glob("file-*"):  # written, and not committed before a crash
            if path.name not in known:
                path.unlink(missing_ok=True)

    @staticmethod
    def exists(folder: Path) -> bool:
        """Whether a folder holds files or batches."""
        return (folder / "jobs.sqlite3").is_file()

    def close(self) -> None:
        with self._lock:
            self._database.close()

    @property
    def now(self) -> int:
        """Seconds since 1970."""
        return int(self._clock())

    # Files

    def add_file(
        self, owner: str, purpose: str, filename: str, content: bytes, keep_s: int | None = None
    ) -> StoredFile:
        """Keep a file, for `keep_s` seconds or for ever. Raises OSError."""
        file_id = _new_id("file-")
        path = self.path(file_id)
        path.write_bytes(content)
        expires = None if keep_s is None else self.now + keep_s
        values = (file_id, owner, purpose, filename, len(content), self.now, expires)
        try:
            self._execute(
                "INSERT INTO files (id, owner, purpose, filename, bytes, created_at, expires_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                *values,
            )
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        found = self.file(file_id, owner)
        assert found is not None
        return found

    def file(self, file_id: str, owner: str) -> StoredFile | None:
        rows = self._select("SELECT * FROM files WHERE id = ? AND owner = ?", file_id, owner)
        return StoredFile(**rows[0]) if rows else None

    def files(self, owner: str, purpose: str | None = None) -> list[StoredFile]:
        """The owner's files, the newest first."""
        rows = self._select(
            "SELECT * FROM files WHERE owner = ? AND (? IS NULL OR purpose = ?)"
            " ORDER BY number DESC",
            owner,
            purpose,
            purpose,
        )
        return [StoredFile(**row) for row in rows]

    def path(self, file_id: str) -> Path:
        """Where the content of a file is."""
        return self._folder / file_id

    def num_bytes(self, owner: str) -> int:
        """Bytes of all files of an owner."""
        (row,) = self._select("SELECT SUM(bytes) AS sum FROM files WHERE owner = ?", owner)
        return int(row["sum"] or 0)

    def delete_file(self, file_id: str) -> None:
        self._execute("DELETE FROM files WHERE id = ?", file_id)
        self.path(file_id).unlink(missing_ok=True)

    def expired_files(self) -> list[str]:
        """Ids of files whose time is over and that no unfinished batch reads."""
        marks = ", ".join("?" * len(UNFINISHED))
        rows = self._select(
            "SELECT id FROM files WHERE expires_at <= ? AND id NOT IN"
            f" (SELECT input_file_id FROM batches WHERE status IN ({marks}))",
            self.now,
            *UNFINISHED,
        )
        return [row["id"] for row in rows]

    # Batches

    def add_batch(
        self,
        owner: str,
        endpoint: str,
        input_file_id: str,
        window: str,
        window_s: int,
        metadata: Mapping[str, str] | None,
        keep_s: int | None,
    ) -> StoredBatch:
        batch_id = _new_id("batch_")
        self._execute(
            "INSERT INTO batches (id, owner, endpoint, input_file_id, completion_window, metadata,"
            " keep_s, status, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            *(batch_id, owner, endpoint, input_file_id, window),
            *(None if metadata is None else json.dumps(metadata), keep_s, "validating"),
            *(self.now, self.now + window_s),
        )
        return self.batch(batch_id)

    def batch(self, batch_id: str) -> StoredBatch:
        """Raises KeyError."""
        rows = self._select("SELECT * FROM batches WHERE id = ?", batch_id)
        if not rows:
            raise KeyError(batch_id)
        return _batch(rows[0])

    def batches(self, owner: str) -> list[StoredBatch]:
        """The owner's batches, the newest first."""
        rows = self._select("SELECT * FROM batches WHERE owner = ? ORDER BY number DESC", owner)
        return [_batch(row) for row in rows]

    def unfinished(self) -> list[StoredBatch]:
        """All owners' batches that are not at their end, the oldest first."""
        marks = ", ".join("?" * len(UNFINISHED))
        rows = self._select(
            f"SELECT * FROM batches WHERE status IN ({marks}) ORDER BY number", *UNFINISHED
        )
        return [_batch(row) for row in rows]

    def set_status(self, batch_id: str, status: Status, **values: Any) -> None:
        """Change a batch's status, and note the time of it; `values` are further columns."""
        if "errors" in values:
            values["errors"] = json.dumps(values["errors"])
        values |= {"status": status, f"{status}_at": self.now}
        columns = ", ".join(f"{name} = ?" for name in values)
        self._execute(f"UPDATE batches SET {columns} WHERE id = ?", *values.values(), batch_id)

    def add_result(self, batch_id: str, line: int, text: str, *, ok: bool) -> None:
        """Keep the result of an input line, once. Counts it as completed or failed."""
        with self._transaction():
            added = self._execute(
                "INSERT OR IGNORE INTO results VALUES (?, ?, ?, ?)", batch_id, line, ok, text
            )
            if added:
                column = "completed" if ok else "failed"
                self._execute(f"UPDATE batches SET {column} = {column} + 1 WHERE id = ?", batch_id)

    def lines_done(self, batch_id: str) -> set[int]:
        """The input lines that have a result."""
        rows = self._select("SELECT line FROM results WHERE batch_id = ?", batch_id)
        return {row["line"] for row in rows}

    def results(self, batch_id: str, *, ok: bool) -> list[str]:
        """The results of a kind, in the order of their input lines."""
        rows = self._select(
            "SELECT text FROM results WHERE batch_id = ? AND ok = ? ORDER BY line", batch_id, ok
        )
        return [row["text"] for row in rows]

    def finish(
        self, batch: StoredBatch, status: Status, output: bytes | None, errors: bytes | None
    ) -> None:
        """Make the output files of a batch and give it its last status, all or nothing."""
        with self._transaction():
            made: dict[str, str | None] = {"output_file_id": None, "error_file_id": None}
            for column, content in (("output_file_id", output), ("error_file_id", errors)):
                if content is not None:
                    name = f"{batch.id}_{column.removesuffix('_file_id')}.jsonl"
                    made[column] = self.add_file(
                        batch.owner, "batch_output", name, content, batch.keep_s
                    ).id
            self.set_status(batch.id, status, **made)
            self._execute("DELETE FROM results WHERE batch_id = ?", batch.id)

    def _select(self, query: str, *values: Any) -> list[dict[str, Any]]:
        with self._lock:
            return [dict(row) for row in self._database.execute(query, values)]

    def _execute(self, query: str, *values: Any) -> int:
        """The number of rows that changed."""
        with self._lock:
            return self._database.execute(query, values).rowcount

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")


def _batch(row: dict[str, Any]) -> StoredBatch:
    parsed = {name: json.loads(row[name]) for name in ("metadata", "errors") if row[name]}
    return StoredBatch(**{**row, "metadata": None, "errors": None} | parsed)


def _new_id(prefix: str) -> str:
    return f"{prefix}{uuid.uuid4().hex}"
