"""Known answers on a clock that only steps move: the policy of drafts without an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from qwink.inputs.tokenizer import Tokenizer
from qwink.lab.extract.corpus import Kind, answers
from qwink.runtime.drafts import Drafter
from qwink.runtime.earlier import EarlierAnswers
from qwink.runtime.sequence import Draft
from qwink.runtime.speculation import Speculation
from qwink.types import Prompt

Cost = Callable[[int], float]  # rows → milliseconds


def avx2(rows: int) -> float:
    """Zen 3 with two threads: 38.8 ms for one row, 122 for eight."""
    return 38.8 + 11.9 * (rows - 1)


def avx512(rows: int) -> float:
    """With AMX or AVX-512: 35.7 ms for one row, 55 for eight, then a second tile."""
    return 35.7 + 2.76 * (rows - 1) if rows <= 8 else 55 + 5 * (rows - 8)


def dear(rows: int) -> float:
    """Each row takes as long as the first."""
    return 38.8 * rows


@dataclass(frozen=True)
class Known:
    """An answer, and the tokens of its question."""

    question: list[int]
    ids: list[int]


def known(tokenizer: Tokenizer, kind: Kind, count: int | None = None) -> list[Known]:
    found = []
    for number, answer in enumerate(answers(kind, count)):
        if answer.text is None:
            ids = np.random.default_rng(number).integers(0, tokenizer.vocab_size, 250).tolist()
        else:
            ids = [*tokenizer.encode_text(answer.text), tokenizer.im_end]
        found.append(Known(tokenizer.encode_text(answer.question), ids))
    return found


class Player:
    """A sequence that says what is known."""

    may_draft = True

    def __init__(self, answer: Known, drafter: Drafter | None) -> None:
        self.ids, self.generated = answer.ids, [answer.ids[0]]
        self._drafter, self._draft = drafter, Draft()

    def draft(self, most: int, guesses: int) -> Draft:
        most = min(most, guesses, len(self.ids) - len(self.generated) - 1)
        if self._drafter is None or most <= 0:
            return Draft()
        self._draft = self._drafter.propose(self.generated, most)
        return self._draft

    @property
    def finished(self) -> bool:
        return len(self.generated) == len(self.ids)

    def accept(self, num_drafts: int) -> int:
        """Take the tokens that a step gives, and return how many."""
        before = len(self.generated)
        for draft in (*self._draft.ids[:num_drafts], None):
            self.generated.append(self.ids[len(self.generated)])
            if self.generated[-1] != draft or self.finished:
                break
        if self.finished and self._drafter is not None:
            self._drafter.finish(self.generated)
        return len(self.generated) - before


class Machine:
    """Runs steps whose times are known. `noise` is the standard deviation of a time, relative."""

    def __init__(self, tokenizer: Tokenizer, cost: Cost, cheap_rows: int, noise: float = 0) -> None:
        self.speculation = Speculation(cheap_rows, lambda: 0.0)
        self.earlier = EarlierAnswers()
        self._cost, self._noise = cost, noise
        self._random = np.random.default_rng(0)
        self._digits = {token for token in range(1000) if tokenizer.decode([token]).isdecimal()}

    def start(self, answer: Known, scope: str = "", prediction: Sequence[int] = ()) -> Player:
        size = len(answer.question)
        prompt = Prompt(np.asarray(answer.question), (), np.zeros((3, size), np.int64), size)
        is_digits = self._digits.__contains__
        return Player(
            answer, Drafter(prompt, is_digits, self.earlier, scope, prediction=prediction)
        )

    def step(self, players: Sequence[Player]) -> float:
        """Milliseconds of a step of all players."""
        sequences = cast(Any, players)
        counts = self.speculation.plan(sequences)
        milliseconds = self._cost(len(players) + sum(counts))
        noisy = milliseconds * max(0.1, 1 + self._noise * self._random.standard_normal())
        came = [player.accept(number) for player, number in zip(players, counts, strict=True)]
        self.speculation.ran(sequences, came, sum(counts), noisy / 1e3)
        return milliseconds

    def gain(self, answer: Known, **options: Any) -> tuple[float, float, int]:
        """Time without drafts and with them, and the number of steps, of one answer alone."""
        player = self.start(answer, **options)
        spent, steps = 0.0, 0
        while not player.finished:
            spent += self.step([player])
            steps += 1
        return (len(answer.ids) - 1) * self._cost(1), spent, steps
