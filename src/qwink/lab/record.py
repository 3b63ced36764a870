"""The format of result files: facts of the machine, and what was measured on it.

As JSON, the fields of the measurements stand beside `kind` and `facts` in one object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from qwink.errors import OptionError
from qwink.lab.facts import PACKAGES, Facts, Hardware, collect

RESULTS = Path("benchmarks", "results")  # from the repository's root
Measured = TypeVar("Measured")


@dataclass(frozen=True, slots=True)
class Record(Generic[Measured]):
    """A result: `measured` is a frozen dataclass of the kind, or a mapping when read from a file.

    `facts` are None for files older than this format.
    """

    kind: str
    facts: Facts | None
    measured: Measured

    def document(self) -> dict[str, Any]:
        """The JSON object."""
        facts = None if self.facts is None else asdict(self.facts)
        measured: Any = self.measured
        fields = dict(measured) if isinstance(measured, Mapping) else asdict(measured)
        return {"kind": self.kind, "facts": facts} | fields


def record(
    kind: str,
    measured: Measured,
    packages: Sequence[str] = PACKAGES,
    accelerator: str | None = None,
) -> Record[Measured]:
    """What was measured, with the facts of this machine; see `collect`."""
    return Record(kind, collect(packages, accelerator), measured)


def write(path: Path, document: Mapping[str, Any]) -> None:
    """A record's document as a file; its folder is created if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", "utf-8")


def read(path: Path) -> Record[dict[str, Any]]:
    """The record in a file. Raises OptionError if the file holds none."""
    try:
        return parse(json.loads(path.read_text("utf-8")))
    except (LookupError, TypeError, ValueError):
        raise OptionError(f"{path}: not a result of qwink bench; give the JSON of --out") from None


def parse(document: Mapping[str, Any]) -> Record[dict[str, Any]]:
    """The inverse of `Record.document`. Raises LookupError, TypeError or ValueError."""
    measured = dict(document)
    kind, facts = measured.pop("kind"), measured.pop("facts")
    return Record(str(kind), None if facts is None else _facts(facts), measured)


def _facts(values: Mapping[str, Any]) -> Facts:
    hardware = dict(values["hardware"])
    hardware["features"] = tuple(hardware["features"])
    return Facts(**{**values, "hardware": Hardware(**hardware)})
