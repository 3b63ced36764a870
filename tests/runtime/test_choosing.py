"""An answer that is one of several texts, against probabilities computed the slow way."""

from __future__ import annotations

from collections.abc import Sequence as Series
from itertools import takewhile
from typing import Any

import numpy as np
import pytest

from qwink.errors import ShapeError
from qwink.inputs.shape import choices_shape
from qwink.inputs.tokenizer import Tokenizer
from qwink.model.rope import mrope_positions
from qwink.runtime.choosing import ChoiceSequence
from qwink.runtime.listening import listen
from qwink.runtime.preparation import ImageOptions
from qwink.runtime.vlm import VLM
from qwink.types import Message, Prompt, SamplingParams
from tests.tiny import write_tokenizer

V = 800
CHOICES = ("the total", "the total of it", "the map", "What", "a", "10", "100", "図 é 😀")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder)
    return Tokenizer.load(folder)


def logits_behind(seed: int, path: Series[int]) -> Any:
    return np.random.default_rng([seed, *path]).normal(0, 3, V).astype(np.float32)


def start(tokenizer: Tokenizer, texts: Series[str], **options: Any) -> ChoiceSequence:
    positions, following = mrope_positions(9, ())
    prompt = Prompt(np.arange(9), (), positions, following)
    num_logprobs = options.pop("num_logprobs", None)
    params = SamplingParams(**options)
    shape = choices_shape(texts)
    return ChoiceSequence(prompt, params, tokenizer, np.array([0]), V, shape, 99, num_logprobs)


def run(sequence: ChoiceSequence, seed: int, rows: int) -> tuple[str, int]:
    """The text and the number of rows, with a cache that holds what was run."""
    cache: list[int] = []
    text, count = sequence.accept(logits_behind(seed, ())[None]), 0
    while sequence.finish_reason is None:
        ids = sequence.next_ids(rows - 1)
        assert 1 <= len(ids) <= rows
        held = sequence.num_cached - 9
        assert held <= len(cache)
        assert sequence.position == 9 + held
        cache = [*cache[:held], *ids]
        places = [cache[: held + at + 1] for at in range(len(ids))]
        found = [logits_behind(seed, place) for place in places[-sequence.num_logits :]]
        text += sequence.accept(np.stack(found))
        count += len(ids)
    return text, count


def expected(tokenizer: Tokenizer, texts: Series[str], seed: int) -> dict[str, float]:
    """Each choice's probability, following every way to say it, however unlikely."""
    spelt = {token: tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)}
    spelt = {token: text for token, text in spelt.items() if text and token not in added(tokenizer)}
    ends = list(tokenizer.eos_ids)
    found = dict.fromkeys(texts, 0.0)

    def follow(path: list[int], probability: float, rests: dict[str, bytes]) -> None:
        if len(rests) == 1:
            found[next(iter(rests))] += probability
            return
        cuts = [tokenizer.encode_text(rest.decode()) for rest in rests.values()]
        same = takewhile(lambda row: len(set(row)) == 1, zip(*cuts, strict=False))
        if common := [row[0] for row in same]:
            said = sum(len(spelt[token]) for token in common)
            follow(
                [*path, *common], probability, {text: rest[said:] for text, rest in rests.items()}
            )
            return
        weights = np.exp(logits_behind(seed, path).astype(np.float64))
        after: dict[int | None, dict[str, bytes]] = {
            token: {text: rest[len(start):] for text, rest in rests.items()
                    if rest.startswith(start)}
            for token, start in spelt.items()
        }  # fmt: skip
        after[None] = {text: rest for text, rest in rests.items() if not rest}
        after = {token: rests for token, rests in after.items() if rests}
        values = {
            token: weights[ends].sum() if token is None else weights[token] for token in after
        }
        for token, rests in after.items():
            share = probability * float(values[token] / sum(values.values()))
            follow(path if token is None else [*path, token], share, rests)

    follow([], 1.0, {text: text.encode() for text in texts})
    return found


def added(tokenizer: Tokenizer) -> set[int]:
    return set(tokenizer.added_tokens.values())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rows", [1, 2, 8])
@pytest.mark.parametrize("num_logprobs", [None, 3])
def test_probabilities(
    tokenizer: Tokenizer, seed: int, rows: int, num_logprobs: int | None
) -> None:
    sequence = start(tokenizer, CHOICES, num_logprobs=num_logprobs)
    text, _ = run(sequence, seed, rows)
    wanted = expected(tokenizer, CHOICES, seed)
    found = {one.text: one.probability for one in sequence.choices}
    assert found == pytest.approx(wanted, abs=0.004)
    assert sum(found.values()) == pytest.approx(1)
    assert text == max(wanted, key=lambda one: wanted[one]) == sequence.choices[0].text
    assert tokenizer.decode(sequence.generated) == text
    assert (sequence.finish_reason, sequence.complete) == ("stop", True)
    logprobs = sequence.take_logprobs()
    if num_logprobs is None:
        assert logprobs == ()
        return
    assert [one.id for one in logprobs] == sequence.generated
    for at, one in enumerate(logprobs):
        row = logits_behind(seed, sequence.generated[:at]).astype(np.float64)
        row[0] = -np.inf  # never sampled
        assert one.logprob == pytest.approx(row[one.id] - np.log(np.exp(row).sum()), rel=1e-4)


def test_first_tokens_that_differ_need_no_step(tokenizer: Tokenizer) -> None:
    assert run(start(tokenizer, ("What", "receipt", "total")), 1, 8)[1] == 0


def test_draws_follow_the_probabilities(tokenizer: Tokenizer) -> None:
    wanted = expected(tokenizer, CHOICES, 2)
    drawn = [
        run(start(tokenizer, CHOICES, temperature=1.0, seed=seed), 2, 8)[0] for seed in range(400)
    ]
    for text, probability in wanted.items():
        assert drawn.count(text) / 400 == pytest.approx(probability, abs=0.08)
    likely = start(tokenizer, CHOICES, temperature=1.0, top_k=1, seed=5)
    assert run(likely, 2, 8)[0] == max(wanted, key=lambda one: wanted[one])


def test_a_choice_that_is_cut_is_not_whole(tokenizer: Tokenizer) -> None:
    (text,) = ("the total of this receipt",)
    cut = start(tokenizer, (text,), max_tokens=2)
    assert text.startswith(run(cut, 0, 8)[0])
    assert (cut.finish_reason, cut.complete) == ("length", False)
    whole = start(tokenizer, (text,), max_tokens=len(tokenizer.encode_text(text)))
    assert run(whole, 0, 8)[0] == text
    assert (whole.finish_reason, whole.complete) == ("stop", True)
    stopped = start(tokenizer, (text,), stop=("of",))
    assert run(stopped, 0, 8)[0] == "the total "
    assert (stopped.finish_reason, stopped.complete) == ("stop", False)


def test_a_model_chooses(vlm: VLM) -> None:
    texts = ["yes", "no", "no, never"]
    found = vlm.ask(None, "Is it?", choices=texts)
    assert found.parsed == found.text == found.choices[0].text
    assert {one.text for one in found.choices} == set(texts)
    assert sum(one.probability for one in found.choices) == pytest.approx(1)
    assert (found.finish_reason, found.warnings) == ("stop", ())
    again = vlm.ask(None, "Is it?", choices=texts)
    assert [one.text for one in again.choices] == [one.text for one in found.choices]


def test_probabilities_are_those_of_the_tokens(vlm: VLM) -> None:
    """A choice's probability agrees with the log-probabilities that the model reports."""
    texts = ["yes", "no"]
    _, sampling = vlm.split_options({"choices": texts, "max_tokens": 1})
    turns = [Message("user", ("Is it?",))]
    request = vlm.prepare(turns, ImageOptions(), sampling, num_logprobs=20)
    events = list(listen(vlm.scheduler, request))
    result = events[-1].result
    assert result is not None
    (first, *_) = [one for event in events for one in event.logprobs]
    ids = {text: vlm.tokenizer.encode_text(text)[0] for text in texts}
    assert first.id == ids[result.choices[0].text]
    assert result.choices[0].probability >= 0.5 >= result.choices[1].probability


@pytest.mark.parametrize("choices", [[], ["a", "a"], [""], "yes", ["a"] * 300, [1], ["\ud800"]])
def test_bad_choices(vlm: VLM, choices: Any) -> None:
    with pytest.raises(ShapeError, match=r"^choices: "):
        vlm.ask(None, "Is it?", choices=choices)


def test_choices_longer_than_the_context(vlm: VLM) -> None:
    with pytest.raises(ShapeError, match=r"has \d+ tokens, and the context has \d+ left"):
        vlm.ask(None, "Is it?", choices=["a", "1 2 " * 5000])
