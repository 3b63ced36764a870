"""Rounds over loaded processes of all contenders, and cold starts."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from qwink.lab.peers.contenders import OURS, Contender
from qwink.lab.peers.worker import PeerFailed, Worker
from qwink.lab.pictures.sample import as_jpeg, clouds

QUESTION = "What is shown in this picture? Describe it in detail."

Figures = dict[str, list[float]]  # name → a value for each round


@dataclass(frozen=True)
class TurnsPlan:
    """How much is measured. `side` in pixels: 448 makes 196 visual tokens."""

    threads: int
    rounds: int = 7
    cold_starts: int = 2
    num_tokens: int = 16
    side: int = 448


@dataclass(slots=True)
class Table:
    """Figures by contender, and the reason why a contender is absent."""

    figures: dict[str, Figures] = field(default_factory=dict)
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    prompts: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, values: dict[str, Any]) -> None:
        self.prompts[name] = values.pop("num_prompt_tokens"), values.pop("num_visual_tokens")
        for key, value in values.items():
            self.figures.setdefault(name, {}).setdefault(key, []).append(value)


def picture(seed: int, side: int) -> bytes:
    """A JPEG of `clouds`, side × side pixels."""
    return as_jpeg(clouds(seed, side))


def take_turns(contenders: Sequence[Contender], plan: TurnsPlan, table: Table) -> None:
    """Rounds over processes that stay loaded. Raises PeerFailed if one of ours does not load."""
    with ExitStack() as stack:
        workers = []
        for one in contenders:
            try:
                worker = stack.enter_context(Worker(one, plan.threads))
                worker.ask(picture(0, plan.side), QUESTION, plan.num_tokens)  # warm up
            except PeerFailed as error:
                if one.peer == OURS:
                    raise
                table.absent[one.name] = str(error)
                continue
            assert worker.versions is not None
            table.versions[one.name] = worker.versions
            worker.pause()
            workers.append(worker)
        for number in range(plan.rounds):
            for worker in workers:
                worker.resume()
                values = worker.ask(picture(number + 1, plan.side), QUESTION, plan.num_tokens)
                worker.pause()
                _print(number, worker.contender.name, values)
                table.add(worker.contender.name, values)


def start_cold(contenders: Sequence[Contender], plan: TurnsPlan, table: Table) -> None:
    """From process start to the first token, in turns; one process at a time."""
    for number in range(plan.cold_starts):
        for one in contenders:
            if one.name in table.absent:
                continue
            start = time.perf_counter()
            with Worker(one, plan.threads) as worker:
                worker.ask(picture(number, plan.side), QUESTION, 1)
                spent = (time.perf_counter() - start) * 1e3
            _print(number, one.name, {"cold_start_ms": spent})
            table.figures[one.name].setdefault("cold_start_ms", []).append(spent)


def _print(number: int, name: str, values: dict[str, Any]) -> None:
    shown = {key: round(value) for key, value in values.items() if "_ms" in key}
    if values.get("num_major_faults"):
        shown["num_major_faults"] = values["num_major_faults"]
    print(f"round {number + 1} {name} {shown}", file=sys.stderr, flush=True)
