"""Users of a soak: what they ask for, how they behave, and whether they get what is right."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from qwink.lab.process import ServerProcess
from qwink.lab.soak.answers import Unreadable, answer_of
from qwink.lab.soak.questions import CHAT, SALT_BYTES, Answer, Question, Refused
from qwink.lab.soak.wire import Exchange, Pace, Reply, exchange

PLAIN = Pace()
SLOW_SENDER, SLOW_READER = Pace(send_pause_s=0.1), Pace(read_bytes=512, read_pause_s=0.02)
STALLED = Pace(stall=True)
MAX_EXAMPLES = 20
PLACES = ("/health", "/ready", "/v1/models", "/metrics", "/")


class Wrong(Exception):
    """A reply is not what it must be. The message says what came instead."""


class ServerError(Exception):
    """A status of 500 or more, other than a restart's 503."""


class Interrupted(Exception):
    """A 503 that says when to try again. Only a restart explains it."""


class Tally:
    """Requests by behaviour and outcome, and the first examples of what was wrong."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.examples: list[str] = []

    def add(self, behaviour: str, outcome: str, example: str = "") -> None:
        self.counts[behaviour, outcome] += 1
        if example and len(self.examples) < MAX_EXAMPLES:
            self.examples.append(f"{behaviour}: {example[:500]}")

    def total(self, outcome: str | None = None) -> int:
        """Requests with an outcome; all of them without."""
        return sum(n for (_, which), n in self.counts.items() if outcome in (None, which))


class Users:
    """Ask until they are `leaving`. `cases` are questions with their right answers."""

    def __init__(
        self,
        server: ServerProcess,
        model: str,
        cases: Sequence[tuple[Question, Answer]],
        refusals: Sequence[Refused],
    ) -> None:
        self._server, self._model = server, model
        self._cases, self._refusals = cases, refusals
        self.tally = Tally()
        self.leaving = False
        self._behaviours: dict[str, tuple[int, Callable[[random.Random], Awaitable[None]]]] = {
            "asks": (40, self._asks),
            "sends slowly": (6, lambda rng: self._asks(rng, SLOW_SENDER)),
            "reads slowly": (6, lambda rng: self._asks(rng, SLOW_READER)),
            "uploads first": (6, self._uploads),
            "is refused": (22, self._is_refused),
            "stalls": (2, self._stalls),
            "leaves": (10, self._leaves),
            "looks": (8, self._looks),
        }

    async def run(self, seed: int) -> None:
        """One user, until all are `leaving`."""
        rng = random.Random(seed)
        names = list(self._behaviours)
        weights = [weight for weight, _ in self._behaviours.values()]
        while not self.leaving:
            name = rng.choices(names, weights)[0]
            await self._one(name, self._behaviours[name][1], rng)

    async def _one(
        self, name: str, behave: Callable[[random.Random], Awaitable[None]], rng: random.Random
    ) -> None:
        life, was_up = self._server.life, self._server.up
        outcome, example = "right", ""
        try:
            await behave(rng)
        except (Interrupted, OSError) as error:
            disturbed = not was_up or not self._server.up or self._server.life != life
            if disturbed:
                outcome = "interrupted"
                await asyncio.sleep(1)  # as a client that tries again
            else:
                outcome = "server error" if isinstance(error, Interrupted) else "wrong"
                example = f"{type(error).__name__}: {error}"
        except ServerError as error:
            outcome, example = "server error", str(error)
        except Wrong as error:
            outcome, example = "wrong", str(error)
        self.tally.add(name, outcome, example)

    async def _asks(self, rng: random.Random, pace: Pace = PLAIN) -> None:
        """A question, often one that was asked before, half of the time about an unknown file."""
        question, right = rng.choice(self._cases)
        stream = rng.random() < 0.5
        salt = rng.randbytes(SALT_BYTES) if rng.random() < 0.4 else b""
        body = question.body(self._model, stream, salt)
        reply = _checked(await exchange(self._server.port, question.path, body, pace))
        _compare(question, reply, stream, right)

    async def _uploads(self, rng: random.Random) -> None:
        """Pictures are sent first, and named by their ids in the question."""
        question, right = rng.choice([case for case in self._cases if case[0].pictures])
        life, salt = self._server.life, rng.randbytes(SALT_BYTES)
        text = question.body(self._model, False, salt)
        for index, (kind, content) in enumerate(question.pictures):
            file = content + salt
            reply = _checked(
                await exchange(self._server.port, "/v1/images", file, media_type=f"image/{kind}")
            )
            if reply.status != 200:
                raise Wrong(f"upload: status {reply.status}, code {reply.code}")
            text = text.replace(question.url(index, salt), json.loads(reply.body)["id"].encode())
        reply = _checked(await exchange(self._server.port, question.path, text))
        if reply.status != 200 and self._server.life != life:
            raise Interrupted("the upload went with the process")
        _compare(question, reply, False, right)

    async def _is_refused(self, rng: random.Random) -> None:
        refused = rng.choice(self._refusals)
        reply = _checked(await exchange(self._server.port, CHAT, refused.body))
        if (reply.status, reply.code) != (refused.status, refused.code):
            raise Wrong(f"{refused.name}: status {reply.status}, code {reply.code}")

    async def _stalls(self, rng: random.Random) -> None:
        """The second half of the body never comes."""
        question, _ = rng.choice(self._cases)
        body = question.body(self._model, True)
        reply = _checked(await exchange(self._server.port, question.path, body, STALLED))
        if reply.status != 408:
            raise Wrong(f"status {reply.status}, code {reply.code}")

    async def _leaves(self, rng: random.Random) -> None:
        """Before, during or after the first bytes of a long answer."""
        question, _ = rng.choice(self._cases)
        question = question.longer()
        async with Exchange(self._server.port, PLAIN) as one:
            await one.send(question.path, question.body(self._model, rng.random() < 0.7))
            if rng.random() < 0.5:
                await asyncio.sleep(rng.uniform(0, 0.3))
            else:
                await one.some()

    async def _looks(self, rng: random.Random) -> None:
        """Without a key, without a body: probes, metrics, the page."""
        path = rng.choice(PLACES)
        reply = _checked(await exchange(self._server.port, path, b""))
        if reply.status != 200:
            raise Wrong(f"{path}: status {reply.status}")


def _checked(reply: Reply) -> Reply:
    if reply.status == 503 and "retry-after" in reply.headers:
        raise Interrupted(f"status 503, code {reply.code}")
    if reply.status >= 500:
        raise ServerError(f"status {reply.status}, code {reply.code}")
    return reply


def _compare(question: Question, reply: Reply, stream: bool, right: Answer) -> None:
    try:
        answer = answer_of(question.path, reply, stream)
    except Unreadable as error:
        raise Wrong(str(error)) from None
    if answer != right:
        raise Wrong(f"{answer} instead of {right}")
