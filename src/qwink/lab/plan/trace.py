"""Requests over time: read from JSON lines, or generated."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from qwink.errors import OptionError

_KEPT = 512  # conversations that a generated second question may belong to


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request. `prompt_tokens` include `visual_tokens`."""

    at_s: float
    """Seconds since the start of the trace."""
    prompt_tokens: int
    answer_tokens: int
    visual_tokens: int = 0
    picture: str | None = None
    """What identifies its picture, such as a digest; None without one."""
    conversation: str = ""
    """Empty: a conversation of its own."""
    turn: int = 1
    """The number of the question in its conversation."""


@dataclass(frozen=True, slots=True)
class Mix:
    """What generated requests are like. Arrivals are independent of each other (Poisson).

    `second`: the share of requests that ask again about a picture that was shown before, in its
    conversation. Sizes and lengths are drawn evenly from the given ones.
    """

    rate: float
    """Requests a second."""
    count: int = 10_000
    second: float = 0.3
    visual_tokens: tuple[int, ...] = (48, 192, 432)
    question_tokens: tuple[int, ...] = (16, 32)
    answer_tokens: tuple[int, ...] = (16, 64, 128)
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises OptionError for a number out of range."""
        if not 0 < self.rate < float("inf"):
            raise OptionError(f"the rate is {self.rate:g}; it must be above 0")
        if not 0 <= self.second <= 1:
            raise OptionError(f"the share of second questions is {self.second:g}; it is 0 to 1")
        if self.count < 1:
            raise OptionError(f"the number of requests is {self.count}; it must be 1 or more")


def generate(mix: Mix) -> list[Arrival]:
    """The same requests for the same mix."""
    chance = random.Random(mix.seed)
    at_s, arrivals = 0.0, []
    last: list[Arrival] = []  # of conversations
    for number in range(mix.count):
        at_s += chance.expovariate(mix.rate)
        question = chance.choice(mix.question_tokens)
        answer = chance.choice(mix.answer_tokens)
        if last and chance.random() < mix.second:
            place = chance.randrange(len(last))
            before = last[place]
            arrival = Arrival(
                at_s,
                before.prompt_tokens + before.answer_tokens + question,
                answer,
                before.visual_tokens,
                before.picture,
                before.conversation,
                before.turn + 1,
            )
            last[place] = arrival
        else:
            visual = chance.choice(mix.visual_tokens)
            picture = f"picture {number}" if visual else None
            arrival = Arrival(at_s, visual + question, answer, visual, picture, f"talk {number}")
            if len(last) < _KEPT:
                last.append(arrival)
            else:
                last[chance.randrange(_KEPT)] = arrival
        arrivals.append(arrival)
    return arrivals


def read_trace(path: Path) -> list[Arrival]:
    """The requests of a JSONL file in the order of their arrival.

    Raises OptionError that names the line which is no request.
    """
    known = {field.name: field for field in fields(Arrival)}
    arrivals = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                values = json.loads(line)
                arrival = Arrival(**{name: values[name] for name in known if name in values})
                _check(arrival)
            except (TypeError, ValueError, KeyError) as error:
                raise OptionError(
                    f"{path}, line {number}: not a request ({error}); write JSON with at_s, "
                    "prompt_tokens, answer_tokens, and visual_tokens and picture for a picture"
                ) from None
            arrivals.append(arrival)
    if not arrivals:
        raise OptionError(f"{path}: holds no request")
    return sorted(arrivals, key=lambda arrival: arrival.at_s)


def _check(arrival: Arrival) -> None:
    for name in ("prompt_tokens", "answer_tokens", "turn"):
        value = getattr(arrival, name)
        if not (isinstance(value, int) and value >= 1):
            raise ValueError(f"{name} is {value!r}")
    if not (isinstance(arrival.at_s, int | float) and 0 <= arrival.at_s < float("inf")):
        raise ValueError(f"at_s is {arrival.at_s!r}")
    visual = arrival.visual_tokens
    if not (isinstance(visual, int) and 0 <= visual <= arrival.prompt_tokens):
        raise ValueError(f"visual_tokens is {visual!r}")


def write_trace(path: Path, arrivals: Iterable[Arrival]) -> None:
    """The inverse of `read_trace`."""
    lines = [json.dumps(asdict(arrival), ensure_ascii=False) for arrival in arrivals]
    path.write_text("\n".join(lines) + "\n", "utf-8")


def faster(arrivals: Sequence[Arrival], factor: float) -> list[Arrival]:
    """The same requests at `factor` times the rate."""
    return [Arrival(**{**asdict(arrival), "at_s": arrival.at_s / factor}) for arrival in arrivals]
