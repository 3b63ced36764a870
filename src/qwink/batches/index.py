"""What the rows so far hold, by id and by content: in a temporary database, to bound memory."""

from __future__ import annotations

import json
import sqlite3

from qwink.batches.rows import Row


class Index:
    """Ids and contents of rows. Not safe for threads without a lock.

    The database is a file that SQLite makes and removes, and writes to once its cache is full.
    """

    def __init__(self) -> None:
        self.num_replaced = 0  # rows in the file that another row of the same id replaces
        self._database = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._database.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
            "CREATE TABLE rows (number INTEGER PRIMARY KEY, id TEXT UNIQUE, state TEXT,"
            "                   place INTEGER, sha256 TEXT, question TEXT, line BLOB);"
            "CREATE INDEX contents ON rows (sha256, question) WHERE line IS NOT NULL;"
        )

    def close(self) -> None:
        self._database.close()

    def add(self, row: Row, place: int, *, before: bool = False) -> int:
        """A row that is in the file, at this place; the last one of an id counts.

        `before`: by an earlier run. Returns its number, by which `numbered` finds it.
        """
        original = row.answer is not None and row.same_as is None
        state = "taken" if not before else "done" if row.error is None else "failed"
        self.num_replaced += self.state(row.id) in ("failed", "retried")
        values = (
            _text(row.id),
            state,
            place,
            row.sha256 if original else None,
            _text(row.question),
            row.line() if original else None,
        )
        inserted = self._database.execute(
            "INSERT OR REPLACE INTO rows (id, state, place, sha256, question, line)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            values,
        )
        return int(inserted.lastrowid or 0)

    def take(self, item_id: str) -> None:
        """This run works on the item, again if it failed before."""
        state = "retried" if self.state(item_id) == "failed" else "taken"
        self._database.execute(
            "INSERT INTO rows (id, state) VALUES (?, ?)"
            " ON CONFLICT (id) DO UPDATE SET state = excluded.state",
            (_text(item_id), state),
        )

    def state(self, item_id: str) -> str | None:
        """ "done" or "failed" by an earlier run, "taken" or "retried" by this one, or None."""
        found = self._find("SELECT state FROM rows WHERE id = ?", _text(item_id))
        return None if found is None else str(found)

    def place(self, item_id: str) -> int:
        """The place of the row that counts."""
        found = self._find("SELECT place FROM rows WHERE id = ?", _text(item_id))
        return int(str(found))

    def answer(self, sha256: str, question: str) -> Row | None:
        """The row that answers this question about this content, no copy of another."""
        return _row(
            self._find(
                "SELECT line FROM rows WHERE sha256 = ? AND question = ? AND line IS NOT NULL",
                sha256,
                _text(question),
            )
        )

    def numbered(self, number: int) -> Row | None:
        """The row that `add` gave this number, if it has an answer."""
        return _row(self._find("SELECT line FROM rows WHERE number = ?", number))

    def _find(self, query: str, *values: object) -> object:
        found = self._database.execute(query, values).fetchone()
        return None if found is None else found[0]


def _row(line: object) -> Row | None:
    return None if line is None else Row.of_document(json.loads(bytes(line)))  # type: ignore[call-overload]


def _text(text: str) -> str:
    """SQLite takes no surrogates, which file names that are not UTF-8 have."""
    return text.encode("utf-8", "backslashreplace").decode()
