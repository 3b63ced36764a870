"""Comparisons on several kinds of processors, in one result."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from qwink.lab.peers.cap import CannotHide, Cap, cap, lacks
from qwink.lab.record import Record, read, record
from qwink.native import processor

NOT_MEASURED = "not_measured"  # the reason, in place of figures
Document = dict[str, Any]


def each(cpus: Sequence[str], measure: Callable[[Cap], Document]) -> dict[str, Document]:
    """Kind of processor → its comparison with the facts of this machine, or why there is none."""
    found: dict[str, Document] = {}
    with tempfile.TemporaryDirectory(prefix="qwink-cap-") as folder:
        for cpu in cpus:
            reason = lacks(cpu, processor.flags())
            try:
                made = None if reason else cap(cpu, Path(folder))
            except CannotHide as error:
                made, reason = None, f"what this processor has beyond {cpu} stays in use: {error}"
            if made is None:
                found[cpu] = {NOT_MEASURED: reason}
                continue
            found[cpu] = record("peers", measure(made)).document()
    return found


def merged(path: Path, found: dict[str, Document]) -> Record[Document]:
    """The new comparisons, and those in the file that were not or could not be made now.

    A processor that lacks a kind's instructions does not undo what another has measured.
    """
    before: dict[str, Document] = read(path).measured["processors"] if path.is_file() else {}
    kept = {
        cpu: one
        for cpu, one in before.items()
        if NOT_MEASURED in found.get(cpu, {NOT_MEASURED: ""}) and NOT_MEASURED not in one
    }
    return record("processors", {"processors": {**before, **found, **kept}})
