"""A soak: right answers first, then the load with restarts, then the verdict."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from qwink.errors import QwinkError
from qwink.lab.process import ServerProcess
from qwink.lab.soak.answers import Unreadable, answer_of
from qwink.lab.soak.lives import Lives
from qwink.lab.soak.questions import MAX_BODY_MB, Answer, Question, questions, refusals
from qwink.lab.soak.users import Users
from qwink.lab.soak.verdict import Soak, verdict
from qwink.lab.soak.wire import exchange

_STORE_MB = 8  # small: entries are evicted all the time


@dataclass(frozen=True, slots=True)
class Plan:
    """`model` is as for `qwink serve`. The load lasts `seconds`; `memory_mb` is the server's."""

    model: str
    seconds: float
    concurrency: int = 16
    num_questions: int = 60
    threads: int | None = None
    memory_mb: int = 96


def soak(plan: Plan, report: Callable[[str], None] = lambda _: None) -> Soak:
    """Run the plan. Raises QwinkError if the server does not start or a question has no answer."""
    with tempfile.TemporaryDirectory(prefix="qwink-soak-") as folder:
        return asyncio.run(_soak(plan, Path(folder), report))


async def _soak(plan: Plan, folder: Path, report: Callable[[str], None]) -> Soak:
    asked = questions(plan.num_questions)
    report(f"{plan.model}: the right answers of {len(asked)} questions, one at a time")
    cases = list(zip(asked, await _right_answers(plan, asked, folder), strict=True))
    store = folder / "store"
    flags = ["--disk-cache", "--cache-dir", str(store), "--disk-cache-mb", str(_STORE_MB)]
    main = folder / "main"
    main.mkdir()
    server = ServerProcess([*_flags(plan), *flags], main)
    try:
        await server.start()
        name = await _name(server)
        users = Users(server, name, cases, refusals(name))
        lives = Lives(server, store, report)
        async with asyncio.TaskGroup() as group:
            for seed in range(plan.concurrency):
                group.create_task(users.run(seed))
            await lives.run(plan.seconds, plan.num_questions, users.tally)
            users.leaving = True
        await lives.end()
    finally:
        server.kill()
    return verdict(plan.model, plan.seconds, plan.concurrency, users.tally, server, lives)


def _flags(plan: Plan) -> list[str]:
    flags = ["--model", plan.model, "--memory-mb", str(plan.memory_mb), "--body-timeout", "8"]
    flags += ["--max-body-mb", str(MAX_BODY_MB), "--grace", "30"]
    return flags if plan.threads is None else [*flags, "--threads", str(plan.threads)]


async def _right_answers(plan: Plan, asked: Sequence[Question], folder: Path) -> list[Answer]:
    """From a server of its own: one request at a time, nothing in its caches but what it asked."""
    alone = folder / "alone"
    alone.mkdir()
    server = ServerProcess([*_flags(plan), "--no-disk-cache", "--max-running", "1"], alone)
    try:
        await server.start()
        name = await _name(server)
        answers = []
        for question in asked:
            reply = await exchange(server.port, question.path, question.body(name, False))
            try:
                answers.append(answer_of(question.path, reply, False))
            except Unreadable as error:
                raise QwinkError(
                    f"a question has no answer: {error}: {reply.body[:300]!r}"
                ) from None
        return answers
    finally:
        server.kill()


async def _name(server: ServerProcess) -> str:
    """The model's name for clients."""
    reply = await exchange(server.port, "/v1/models", b"")
    return str(json.loads(reply.body)["data"][0]["id"])
