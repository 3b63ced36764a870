"""How long a replica takes for each piece of work, by its size."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from qwink.errors import OptionError
from qwink.lab.record import Record

# Eight answers together take half more time than one, as runtime/costs assumes before it measures.
EXTRA_ROW = 0.5 / 7


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds by size: straight lines between the measured points, and on beyond them."""

    points: tuple[tuple[float, float], ...]
    """(size, seconds), by rising size; at least one."""

    def __call__(self, size: float) -> float:
        points = self.points
        if len(points) == 1:
            return points[0][1]
        place = min(max(bisect_right(points, (size, 0.0)), 1), len(points) - 1)
        (x0, y0), (x1, y1) = points[place - 1], points[place]
        return max(0.0, y0 + (y1 - y0) * (size - x0) / (x1 - x0))


@dataclass(frozen=True, slots=True)
class ServiceTimes:
    """Times of one replica, in seconds."""

    model: str
    threads: int
    prepare: Curve
    """Fetch, decode, resize of a picture, by its visual tokens."""
    encode: Curve
    """By visual tokens."""
    prefill: Curve
    """Of a prompt from its start, by tokens."""
    step: Curve
    """A token for each running answer, by the number of them."""
    request: float = 0.0
    """What each request takes beside: HTTP and JSON, on the server's processors."""
    encode_parts: int = 24
    """Pieces of one encoding, between which answers take steps."""

    def prefill_from(self, start: int, tokens: int) -> float:
        """Seconds of `tokens` tokens of a prompt behind `start` known ones."""
        if not start:
            return self.prefill(tokens)
        return max(self.prefill(tokens), self.prefill(start + tokens) - self.prefill(start))

    def document(self) -> dict[str, Any]:
        return asdict(self)


def of_stages(record: Record[dict[str, Any]], extra_row: float = EXTRA_ROW) -> ServiceTimes:
    """Times from a result of `qwink bench stages`, with the number of threads measured last.

    It measures one answer at a time; each further one in a step adds the share `extra_row`.
    Raises OptionError for another result.
    """
    document = record.document()
    try:
        run = document["runs"][-1]
        rows = sorted(run["sizes"], key=lambda row: row["image_tokens"])
        stages = {
            stage: _curve([(row[by], row["stages_ms"][stage]["median"] / 1e3) for row in rows])
            for stage, by in (("encode", "image_tokens"), ("prefill", "prompt_tokens"))
        }
        prepare = _curve(
            [
                (
                    row["image_tokens"],
                    sum(row["stages_ms"][s]["median"] for s in ("fetch", "decode", "resize")) / 1e3,
                )
                for row in rows
            ]
        )
        token = rows[len(rows) // 2]["token_ms"]["median"] / 1e3
        step = Curve(((1.0, token), (2.0, token * (1 + extra_row))))
        return ServiceTimes(
            f"{document['model']} {document['recipe']}",
            int(run["threads"]),
            prepare,
            stages["encode"],
            stages["prefill"],
            step,
        )
    except (LookupError, TypeError, ValueError):
        raise OptionError(
            "not a result of qwink bench stages or plan; give the JSON of one, or --calibrate MODEL"
        ) from None


def parse(document: Mapping[str, Any]) -> ServiceTimes:
    """The inverse of `ServiceTimes.document`. Raises OptionError."""
    try:
        values = dict(document)
        for name in ("prepare", "encode", "prefill", "step"):
            points = tuple((float(x), float(y)) for x, y in values[name]["points"])
            values[name] = _curve(points)
        return ServiceTimes(**values)
    except (LookupError, TypeError, ValueError):
        raise OptionError("these service times cannot be read; calibrate again") from None


def of_record(record: Record[dict[str, Any]], extra_row: float = EXTRA_ROW) -> ServiceTimes:
    """From a result of `bench stages`, or of an earlier `bench plan`, which holds its times."""
    if record.kind == "plan" and "times" in record.measured:
        return parse(record.measured["times"])
    return of_stages(record, extra_row)


def _curve(points: Any) -> Curve:
    """Of points of one size the mean. Raises ValueError without points."""
    by_size: dict[float, list[float]] = {}
    for size, seconds in points:
        by_size.setdefault(size, []).append(seconds)
    if not by_size:
        raise ValueError("no points")
    return Curve(tuple((size, sum(found) / len(found)) for size, found in sorted(by_size.items())))
