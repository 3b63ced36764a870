"""What a soak found, and which of its checks failed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qwink.lab.process import ServerProcess
from qwink.lab.soak.lives import Life, Lives
from qwink.lab.soak.users import Tally

LEAST_JUDGED_S = 60.0  # shorter lives say nothing about growth
# Allowed growth from the second third of a life to the last.
_RSS_SHARE, _RSS_MIB, _THREADS = 0.05, 16, 2
_EXIT_CODES = {"SIGTERM": 0, "SIGKILL": -9}


@dataclass(frozen=True, slots=True)
class Soak:
    """What happened. `failures` are sentences; without any, all checks hold."""

    model: str
    seconds: float
    concurrency: int
    requests: int
    right: int
    wrong: int
    server_errors: int
    interrupted: int
    behaviours: dict[str, dict[str, int]]
    lives: tuple[Life, ...]
    failures: tuple[str, ...]
    examples: tuple[str, ...] = field(repr=False)


def verdict(
    model: str, seconds: float, concurrency: int, tally: Tally, server: ServerProcess, lives: Lives
) -> Soak:
    """All checks of a soak that has ended."""
    behaviours: dict[str, dict[str, int]] = {}
    for (name, outcome), count in sorted(tally.counts.items()):
        behaviours.setdefault(name, {})[outcome] = count
    judged = seconds >= LEAST_JUDGED_S
    failures = (
        *_of_replies(tally, behaviours, judged),
        *_of_lives(lives.lives),
        *_of_logs(server.logs),
    )
    return Soak(
        Path(model).name,
        seconds,
        concurrency,
        tally.total(),
        tally.total("right"),
        tally.total("wrong"),
        tally.total("server error"),
        tally.total("interrupted"),
        behaviours,
        tuple(lives.lives),
        failures,
        tuple(tally.examples),
    )


def _of_replies(tally: Tally, behaviours: dict[str, dict[str, int]], judged: bool) -> Iterator[str]:
    if count := tally.total("wrong"):
        yield f"{count} wrong replies"
    if count := tally.total("server error"):
        yield f"{count} server errors"
    for name, outcomes in behaviours.items():
        if "right" not in outcomes and judged:
            yield f"no request of a user who {name} ended well"


def _of_lives(lives: list[Life]) -> Iterator[str]:
    if not any(life.found_on_disk for life in lives[1:]):
        yield "no life found a picture in the store that an earlier one left"
    for number, life in enumerate(lives, 1):
        name = f"life {number}"
        if life.exit_code != _EXIT_CODES[life.end]:
            yield f"{name} ended with exit code {life.exit_code} after {life.end}"
        if life.store.damaged:
            yield f"{name} left damaged entries: {', '.join(life.store.damaged[:3])}"
        if life.seconds < LEAST_JUDGED_S:
            continue
        _, before, after = life.rss_mib
        if after > before * (1 + _RSS_SHARE) + _RSS_MIB:
            yield f"{name} grew from {before} to {after} MiB"
        _, before, after = life.threads
        if after > before + _THREADS:
            yield f"{name} grew from {before} to {after} threads"


def _of_logs(logs: list[Path]) -> Iterator[str]:
    """Lines that are not JSON, and those of a level above warnings."""
    for path in logs:
        lines = path.read_text("utf-8", "replace").split("\n")
        for line in lines[:-1]:  # a killed process may leave half a line at the end
            try:
                entry: dict[str, Any] = json.loads(line)
            except ValueError:
                yield f"{path.name}: a line of the log is not JSON: {line[:200]}"
                break
            if entry.get("level") in ("error", "critical"):
                yield f"{path.name}: {line[:300]}"
                break


def table(found: Soak) -> str:
    """The figures for people."""
    lines = [
        f"{found.model}: {found.requests} requests in {found.seconds / 60:.1f} minutes, "
        f"{found.concurrency} at once: {found.right} right, {found.wrong} wrong, "
        f"{found.server_errors} server errors, {found.interrupted} interrupted by restarts",
        "",
        f"{'a user who':16}{'right':>8}{'wrong':>8}{'errors':>8}{'interrupted':>13}",
    ]
    for name, outcomes in found.behaviours.items():
        right, wrong, errors, interrupted = (
            outcomes.get(key, 0) for key in ("right", "wrong", "server error", "interrupted")
        )
        lines.append(f"{name:16}{right:8}{wrong:8}{errors:8}{interrupted:13}")
    lines += ["", f"{'life':8}{'seconds':>8}  {'RSS MiB':16}{'threads':14}{'store':>7}  found"]
    for life in found.lives:
        rss, threads = (" → ".join(map(str, values)) for values in (life.rss_mib, life.threads))
        lines.append(
            f"{life.end:8}{life.seconds:8.0f}  {rss:16}{threads:14}"
            f"{life.store.entries:7}  {life.found_on_disk}"
        )
    lines += [f"wrong: {example}" for example in found.examples]
    lines += [f"FAILED: {failure}" for failure in found.failures] or ["all checks hold"]
    return "\n".join(lines)
