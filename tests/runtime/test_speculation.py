"""How many drafts run: simulated on the measured costs of two processors' rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qwink.inputs.tokenizer import Tokenizer
from qwink.runtime.costs import StepCosts
from qwink.runtime.sequence import Draft
from qwink.runtime.speculation import MOST_ROWS, Speculation
from tests.runtime.simulation import Cost, Known, Machine, Player, avx2, avx512, dear, known
from tests.tiny import write_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(Path(folder))
    return Tokenizer.load(folder)


def gains(machine: Machine, answers: list[Known]) -> tuple[float, float, float]:
    """Of all answers together, the least of one, and tokens per step."""
    runs = [machine.gain(answer) for answer in answers]
    plain, spent, steps = (sum(column) for column in zip(*runs, strict=True))
    tokens = sum(len(answer.ids) - 1 for answer in answers)
    return plain / spent, min(one / two for one, two, _ in runs), tokens / steps


@pytest.mark.parametrize("noise", [0.0, 0.05])
@pytest.mark.parametrize(
    ("cost", "cheap_rows", "least"), [(avx2, 2, 1.3), (avx512, 8, 1.6)], ids=["avx2", "avx512"]
)
def test_records_come_sooner(
    tokenizer: Tokenizer, cost: Cost, cheap_rows: int, least: float, noise: float
) -> None:
    """With a tokenizer whose tokens are short; Qwen's gain less."""
    machine = Machine(tokenizer, cost, cheap_rows, noise)
    gain, worst, tokens_per_step = gains(machine, known(tokenizer, "json", 24))
    assert gain > least
    assert worst > 0.97
    assert tokens_per_step > gain


@pytest.mark.parametrize("noise", [0.0, 0.05])
@pytest.mark.parametrize("kind", ["text", "random"])
@pytest.mark.parametrize(
    ("cost", "cheap_rows"), [(avx2, 2), (avx512, 8), (dear, 2), (dear, 8)],
    ids=["avx2", "avx512", "dear", "dear-but-said-cheap"],
)  # fmt: skip
def test_no_answer_comes_much_later(
    tokenizer: Tokenizer, cost: Cost, cheap_rows: int, kind: Any, noise: float
) -> None:
    machine = Machine(tokenizer, cost, cheap_rows, noise)
    gain, worst, _ = gains(machine, known(tokenizer, kind, 6))
    assert gain > 0.98
    assert worst > 0.97


def test_wrong_drafts_are_given_up(tokenizer: Tokenizer) -> None:
    """A prediction that is always wrong after its second token."""
    random = np.random.default_rng(1)
    ids = random.integers(10, 600, 300).tolist()
    wrong = [token if index % 3 else 5 for index, token in enumerate(ids)]
    machine = Machine(tokenizer, avx2, 2)
    plain, spent, _ = machine.gain(Known([7, 8, 9], ids), prediction=wrong)
    assert plain / spent > 0.97


def test_other_streams_do_not_pay(tokenizer: Tokenizer) -> None:
    """One stream has good drafts, seven have none: they come as soon as without, within 3 %."""
    machine = Machine(tokenizer, avx512, 8)
    answers = known(tokenizer, "json", 16)
    for answer in answers[:8]:
        machine.gain(answer)
    noise = known(tokenizer, "random", 7)
    others = [machine.start(answer, scope="others") for answer in noise]
    waiting, one = answers[8:], machine.start(answers[8])
    spent, steps = 0.0, 0
    while not any(other.finished for other in others):
        if one.finished:
            waiting = waiting[1:]
            one = machine.start(waiting[0])
        spent += machine.step([one, *others])
        steps += 1
    assert steps == len(noise[0].ids) - 1
    assert spent < 1.03 * steps * avx512(8)


def test_streams_with_drafts_gain_together(tokenizer: Tokenizer) -> None:
    machine = Machine(tokenizer, avx512, 8)
    answers = known(tokenizer, "json", 16)
    for answer in answers[:8]:
        machine.gain(answer)
    players: list[Player] = [machine.start(answer) for answer in answers[8:11]]
    spent = without = 0.0
    while len(players) == 3:
        before = sum(len(player.generated) for player in players)
        spent += machine.step(players)
        without += (sum(len(player.generated) for player in players) - before) / 3 * avx512(3)
        players = [player for player in players if not player.finished]
    assert without / spent > 1.2


class Forced:
    """A sequence of which the next four tokens are certain, always."""

    may_draft = True

    def draft(self, most: int, guesses: int) -> Draft:
        return Draft((1, 2, 3, 4)[:most], (1.0,) * min(most, 4), min(most, 4))


def test_certain_tokens_run_after_losses() -> None:
    """Planning took much longer than the steps, so that the account is far below nothing."""
    times = iter(range(1000))
    speculation = Speculation(8, lambda: float(next(times)))
    sequences: list[Any] = [Forced()]
    for _ in range(20):
        counts = speculation.plan(sequences)
        speculation.ran(sequences, [1], 0, 0.03)
    assert counts == [4]


def test_rows_have_a_limit(tokenizer: Tokenizer) -> None:
    """However cheap they are and however sure the drafts."""
    ids = list(range(10, 500))
    machine = Machine(tokenizer, lambda _: 30.0, 8)
    rows = []
    player = machine.start(Known([7, 8], ids), prediction=ids)
    while not player.finished:
        counts = machine.speculation.plan([player])  # type: ignore[list-item]
        rows.append(1 + counts[0])
        came = player.accept(counts[0])
        machine.speculation.ran([player], [came], counts[0], 0.03)  # type: ignore[list-item]
    assert max(rows) == MOST_ROWS
    assert rows[0] == 1  # nothing is known of the cost yet


def test_costs() -> None:
    costs = StepCosts(cheap_rows=5)
    assert not costs.known(1)
    costs.add(1, 0, 0.040)
    assert costs.known(1)
    assert not costs.known(2)
    assert costs.extra(1, 4) == pytest.approx(0.020)  # as the engine says, half more for five rows
    assert costs.extra(1, 0) == 0
    for seconds in (0.050, 0.052, 0.900):  # the median is not moved by one slow step
        costs.add(1, 2, seconds)
    assert costs.extra(1, 2) == pytest.approx(0.012)
    assert costs.extra(1, 1) == pytest.approx(0.006)
    assert costs.extra(1, 6) == pytest.approx(0.036)
    costs.add(1, 4, 0.030)  # more rows do not take less time
    assert costs.extra(1, 4) == pytest.approx(0.012)
    for _ in range(300):
        costs.add(1, 2, 0.052)
    assert not costs.known(1)  # the step without drafts was measured too long ago
    costs.add(1, 0, 0.041)
    assert costs.known(1)
