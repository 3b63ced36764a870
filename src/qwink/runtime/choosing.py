"""An answer that is one of several texts, and the probability of each.

A choice's probability is the probability that the model says it, token by token, if at each token
it may only go on with what leads to a choice. The model's probabilities are taken, before penalties
and temperature. Where tokens can be cut in several ways, each way counts. Tokens that all remaining
choices begin with, as the tokenizer cuts them, are taken for said.

Most choices differ in their first token, which the prompt's pass decides: then no step runs.
"""

from __future__ import annotations

import heapq
import json
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwink.engine.sampler import Sampler
from qwink.errors import ShapeError
from qwink.inputs.tokenizer import Tokenizer
from qwink.runtime.sequence import Draft, Sequence
from qwink.types import Choice, Prompt, SamplingParams, Shape, TokenLogprob

Float = NDArray[np.float32]
Path = tuple[int, ...]

LEAST = 1e-3  # a way to go on that is less likely than this is not followed
MOST_LOOKS = 4  # for each choice: where all tokens are alike to a model, the ways have no end

_END = -1  # stands for the tokens that end an answer


@dataclass(frozen=True, slots=True)
class Place:
    """Tokens that may have been said, how likely they are, and the choices that begin so."""

    path: Path
    said: int  # bytes
    probability: float
    remaining: tuple[int, ...]


class ChoiceSequence(Sequence):
    """Scores all choices, then says one: the likeliest, or one drawn as `params` say.

    Temperature, top-k, top-p, min-p and seed apply to the choices; penalties have no effect.
    """

    def __init__(
        self,
        prompt: Prompt,
        params: SamplingParams,
        tokenizer: Tokenizer,
        forbidden: NDArray[np.int64],
        vocab_size: int,
        shape: Shape,
        room: int,
        num_logprobs: int | None = None,
    ) -> None:
        """`shape` is of kind choices; `room`: how many tokens the cache takes behind the prompt.

        Raises ShapeError if a choice has more.
        """
        super().__init__(prompt, params, tokenizer, forbidden, vocab_size, num_logprobs)
        self._tokenizer = tokenizer
        self._texts = [text.encode() for text in json.loads(shape.source)]
        longest = max(len(self._tokens(text)) for text in self._texts)
        if longest > room:
            message = f"one of them has {longest} tokens, and the context has {room} left"
            raise ShapeError("choices", message)
        self.num_reserved = min(room, max(map(len, self._texts)))
        self._ends = np.array([token for token in tokenizer.eos_ids if token < vocab_size])
        self._probabilities = [0.0] * len(self._texts)
        self._likeliest = [Place((), 0, -1.0, ())] * len(self._texts)  # of those of each choice
        # Where the next logits are wanted; where others will be, the likeliest first.
        self._place = self._forward(Place((), 0, 1.0, tuple(range(len(self._texts)))))
        self._open: list[tuple[float, Path, Place]] = []
        self._num_looks = 0
        self._cached: Path = ()  # tokens behind the prompt that are in the cache
        self._running: Path = ()  # those of the step that runs
        self._start = 0  # how many lie before them
        self._answer: Path = ()  # the tokens to say, once a text is chosen
        self._reported: list[TokenLogprob] = []  # of the answer's tokens
        self._first: Float | None = None  # the prompt's logits, if they are to be reported
        self._choices: tuple[Choice, ...] = ()

    @property
    def choices(self) -> tuple[Choice, ...]:
        return self._choices

    @property
    def num_cached(self) -> int:
        return len(self.prompt) + self._start

    @property
    def position(self) -> int:
        return self.prompt.next_position + self._start

    @property
    def complete(self) -> bool:
        whole = bool(self._answer) and tuple(self.generated) == self._answer
        return whole and not self._stops.stopped

    @property
    def may_draft(self) -> bool:
        return True

    def draft(self, most: int, guesses: int | None = None) -> Draft:
        """The tokens that must run, beyond the first of them. There are no guesses."""
        ids = self._missing()[1 : 1 + most]
        return Draft(ids, (1.0,) * len(ids), len(ids))

    def next_ids(self, num_drafts: int = 0) -> tuple[int, ...]:
        missing = self._missing()
        self._start = len(self._target) - len(missing)
        self._running = missing[: 1 + num_drafts]
        return self._running

    @property
    def num_logits(self) -> int:
        return len(self._running) if self._answer else 1

    @property
    def _target(self) -> Path:
        return self._answer[:-1] if self._answer else self._place.path

    def _missing(self) -> Path:
        """The target's tokens that are not in the cache; the last one at least."""
        target = self._target
        shared = len(_common([target, self._cached]))
        return target[min(shared, len(target) - 1) :]

    def accept(self, logits: Float) -> str:
        self._cached = self._cached[: self._start] + self._running
        if self._answer:
            for row in logits:
                self._report(row)
        else:
            if not self._cached and self._num_logprobs is not None:
                self._first = logits[-1].copy()
            if self._cached != self._target:
                return ""
            self._look(self._place, logits[-1])
            if self._open:
                self._place = heapq.heappop(self._open)[-1]
                return ""
            self._answer = self._choose_text()
            self._cached = ()  # what is reported runs again
            if self._first is not None:
                self._report(self._first)
        if self._num_logprobs is not None and len(self._reported) < len(self._answer):
            return ""
        return self._say()

    def _look(self, place: Place, logits: Float) -> None:
        """Divide a place's probability among the tokens that go on from there."""
        self._num_looks += 1
        scores = self._sampler.scores(logits)
        after: dict[int, list[int]] = {}
        for choice in place.remaining:
            rest = self._texts[choice][place.said :]
            for token in self._tokenizer.starts_of(rest) if rest else (_END,):
                after.setdefault(token, []).append(choice)
        values = [
            _log_sum(scores[self._ends]) if token == _END else float(scores[token])
            for token in after
        ]
        total = _log_sum(np.array(values))
        for (token, remaining), value in zip(after.items(), values, strict=True):
            probability = place.probability * math.exp(value - total)
            path, said = place.path, place.said
            if token != _END:
                path, said = (*path, token), said + len(self._tokenizer.token_bytes(token))
            self._enter(Place(path, said, probability, tuple(remaining)))

    def _enter(self, place: Place) -> None:
        """Look at a place later, or settle it: where one choice remains, or it is unlikely."""
        if len(place.remaining) > 1:
            ahead = self._forward(place)
            few = self._num_looks + len(self._open) < MOST_LOOKS * len(self._texts)
            if few and place.probability >= LEAST and len(ahead.path) <= self.num_reserved:
                heapq.heappush(self._open, (-place.probability, ahead.path, ahead))
                return
        for choice in place.remaining:
            self._probabilities[choice] += place.probability / len(place.remaining)
            if place.probability > self._likeliest[choice].probability:
                self._likeliest[choice] = place

    def _forward(self, place: Place) -> Place:
        """The place behind the tokens that all choices have in common there."""
        rests = [self._tokens(self._texts[choice][place.said :]) for choice in place.remaining]
        common = _common(rests)
        said = sum(len(self._tokenizer.token_bytes(token)) for token in common)
        return replace(place, path=place.path + common, said=place.said + said)

    def _tokens(self, text: bytes) -> Path:
        """As the tokenizer cuts a text, which may begin within a character."""
        try:
            return tuple(self._tokenizer.encode_verbatim(text.decode()))
        except UnicodeDecodeError:
            first = self._tokenizer.starts_of(text)[0]
            return (first, *self._tokens(text[len(self._tokenizer.token_bytes(first)) :]))

    def _choose_text(self) -> Path:
        """The tokens of the chosen text; the choices' probabilities are known from here on."""
        probabilities = np.array(self._probabilities)
        order = np.argsort(-probabilities, kind="stable")
        self._choices = tuple(
            Choice(self._texts[index].decode(), float(probabilities[index])) for index in order
        )
        with np.errstate(divide="ignore"):
            logs = np.log(probabilities).astype(np.float32)
        chosen = Sampler(self._params, (), len(logs)).sample(logs)
        place = self._likeliest[chosen]
        return place.path + self._tokens(self._texts[chosen][place.said :])

    def _report(self, logits: Float) -> None:
        """The logprob of the answer's next token."""
        token = self._answer[len(self._reported)]
        found = self._sampler.logprobs(logits, token, self._num_logprobs or 0)
        self._reported.append(TokenLogprob(token, found.chosen, found.top))

    def _say(self) -> str:
        text = ""
        for index, token in enumerate(self._answer):
            text += self._take(token, self._reported[index] if self._reported else None)
            if self.finish_reason is not None:
                break
        if self.finish_reason is None:
            text += self._finish("stop")
        elif self.complete:  # it has as many tokens as are allowed
            self.finish_reason = "stop"
        self._num_shown += len(text)
        return text


def _log_sum(values: NDArray[Any]) -> float:
    """The logarithm of a sum of exponentials."""
    peak = float(values.max())
    return peak + math.log(float(np.exp(values - peak).sum(dtype=np.float64)))


def _common(paths: list[Path]) -> Path:
    """The tokens that all paths begin with."""
    shortest = min(paths, key=len)
    for index, token in enumerate(shortest):
        if any(path[index] != token for path in paths):
            return shortest[:index]
    return shortest
