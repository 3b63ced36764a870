"""One answer in the making, fed with logits that leave no choice."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Series
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qwink.errors import GenerationError
from qwink.inputs.tokenizer import Tokenizer
from qwink.model.rope import mrope_positions
from qwink.runtime.sequence import Draft, Drafter, Sequence
from qwink.types import Grid, ImageSpan, Prompt, SamplingParams
from tests.tiny import write_tokenizer

V = 800


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(Path(folder))
    return Tokenizer.load(folder)


def start(
    tokenizer: Tokenizer,
    num_logprobs: int | None = None,
    drafter: Drafter | None = None,
    **options: Any,
) -> Sequence:
    spans = (ImageSpan(2, 4, Grid(1, 4, 4), "picture"),)
    positions, following = mrope_positions(9, spans)
    prompt = Prompt(np.arange(9), spans, positions, following)
    params = SamplingParams(**options)
    return Sequence(prompt, params, tokenizer, np.array([0]), V, num_logprobs, drafter)


def want(token: int) -> Any:
    logits = np.zeros((1, V), np.float32)
    logits[0, token] = 50
    return logits


def feed(sequence: Sequence, ids: Iterable[int]) -> list[str]:
    """Pieces until the ids are used up or the sequence is finished."""
    pieces = []
    for token in ids:
        pieces.append(sequence.accept(want(token)))
        if sequence.finish_reason is not None:
            break
    return pieces


def test_counts_follow_the_cache(tokenizer: Tokenizer) -> None:
    sequence = start(tokenizer)
    ids = tokenizer.encode_text("the total")
    for number, token in enumerate(ids):
        sequence.accept(want(token))
        assert sequence.next_ids() == (token,)
        assert sequence.num_cached == 9 + number  # all but the last
        # Nine tokens, of which four lie on a grid two high and wide: seven positions.
        assert sequence.position == 7 + number
    assert sequence.generated == ids


def test_pieces_make_the_text(tokenizer: Tokenizer) -> None:
    text = "The total of this receipt is 12.50 €, 图片 😀."
    sequence = start(tokenizer)
    ids = tokenizer.encode_text(text)
    assert "".join(feed(sequence, [*ids, tokenizer.im_end])) == text
    assert sequence.finish_reason == "stop"
    assert len(sequence.generated) == len(ids) + 1


def test_length(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_text("图片里有什么？" * 3)
    sequence = start(tokenizer, max_tokens=2)
    text = "".join(feed(sequence, ids))
    assert sequence.finish_reason == "length"
    assert sequence.generated == ids[:2]
    assert text == tokenizer.decode(ids[:2])  # a cut character shows as one


def test_held_back_text_comes_at_the_end(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_text("total of")
    sequence = start(tokenizer, stop=("total of this",), max_tokens=len(ids))
    pieces = feed(sequence, ids)
    assert pieces[:-1] == [""] * (len(ids) - 1)
    assert pieces[-1] == "total of"
    assert sequence.finish_reason == "length"


def test_stop_string(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_text("The total of this receipt")
    sequence = start(tokenizer, stop=("of th",))
    assert "".join(feed(sequence, ids)) == "The total "
    assert sequence.finish_reason == "stop"


def test_repetition(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_text(" total") * 400
    sequence = start(tokenizer, max_tokens=1000)
    text = "".join(feed(sequence, ids))
    assert sequence.finish_reason == "repetition"
    assert len(sequence.generated) < 400
    assert text == tokenizer.decode(sequence.generated)


def test_logprobs_are_taken_once(tokenizer: Tokenizer) -> None:
    sequence = start(tokenizer, num_logprobs=2)
    feed(sequence, [300, 301])
    taken = sequence.take_logprobs()
    assert [entry.id for entry in taken] == [300, 301]
    assert all(entry.logprob == pytest.approx(0) and len(entry.top) == 2 for entry in taken)
    assert sequence.take_logprobs() == ()
    plain = start(tokenizer)
    feed(plain, [300])
    assert plain.take_logprobs() == ()


@pytest.mark.parametrize("stop", ["of th", "this", " receipt", "图", "é n"])
def test_logprobs_and_text_agree(tokenizer: Tokenizer, stop: str) -> None:
    """Tokens of the stop string, or of text held back for it, are reported when they are shown."""
    ids = tokenizer.encode_text("The total of this receipt, café né 图片 is 12.50 €")
    sequence = start(tokenizer, num_logprobs=0, stop=(stop,))
    text, reported = "", []
    for token in [*ids, tokenizer.im_end]:
        text += sequence.accept(want(token))
        reported += [entry.id for entry in sequence.take_logprobs()]
        assert tokenizer.decode(reported).startswith(text)
        if sequence.finish_reason is not None:
            break
    assert sequence.finish_reason == "stop"
    assert text == "The total of this receipt, café né 图片 is 12.50 €".split(stop)[0]
    # The last token may go beyond the text; without it there would be text without a token.
    assert len(tokenizer.decode(reported[:-1])) < len(text)


def test_the_end_token_has_no_text_and_no_logprob(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_text("the total")
    sequence = start(tokenizer, num_logprobs=0)
    feed(sequence, [*ids, tokenizer.im_end])
    assert [entry.id for entry in sequence.take_logprobs()] == ids


class Guess:
    """Proposes the ids of `known` that follow the answer, every third of them changed."""

    def __init__(self, known: list[int], wrong_every: int) -> None:
        self._known, self._wrong_every = known, wrong_every

    def propose(self, generated: Series[int], most: int) -> Draft:
        at = len(generated)
        ids = tuple(
            token + (index % self._wrong_every == self._wrong_every - 1)
            for index, token in enumerate(self._known[at : at + most], at)
        )
        return Draft(ids, (0.5,) * len(ids))

    def finish(self, generated: Series[int]) -> None:
        assert list(generated) == self._known


@pytest.mark.parametrize("temperature", [0.0, 1.5])
@pytest.mark.parametrize("wrong_every", [1, 2, 3, 1000])
def test_drafts_change_nothing(tokenizer: Tokenizer, wrong_every: int, temperature: float) -> None:
    """The model's logits depend on the last two tokens; drafts are right, wrong, or in between."""
    options: dict[str, Any] = {"temperature": temperature, "seed": 7, "max_tokens": 40}

    def logits(before: int, last: int) -> Any:
        return np.random.default_rng([before, last]).normal(0, 3, V).astype(np.float32)

    def answer(drafter: Drafter | None) -> tuple[str, list[int], list[Any], int, int]:
        sequence = start(tokenizer, num_logprobs=1, drafter=drafter, **options)
        text, steps = sequence.accept(logits(0, 0)[None]), 1
        taken: list[Any] = []
        while sequence.finish_reason is None:
            assert sequence.num_cached == 9 + len(sequence.generated) - 1
            ids = [*([0, *sequence.generated][-2:-1]), *sequence.next_ids(5)]
            rows = [logits(*pair) for pair in pairwise(ids)]
            text += sequence.accept(np.stack(rows))
            taken += sequence.take_logprobs()
            steps += 1
        # A draft that ends the answer saves the step behind it, too.
        assert sequence.num_accepted + steps - len(sequence.generated) in (0, 1)
        return text, sequence.generated, taken, steps, sequence.num_rejected

    text, ids, taken, steps, none = answer(None)
    drafted = answer(Guess(ids, wrong_every))
    assert drafted[:3] == (text, ids, taken)
    assert (drafted[3] < steps) == (wrong_every > 1)
    assert (drafted[4] > none == 0) == (wrong_every < 1000)


def test_forbidden_and_broken_logits(tokenizer: Tokenizer) -> None:
    sequence = start(tokenizer)
    sequence.accept(want(0))
    assert sequence.next_ids() != (0,)
    with pytest.raises(GenerationError):
        sequence.accept(np.full((1, V), np.nan, np.float32))
