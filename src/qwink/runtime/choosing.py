"""An answer that is one of several texts, and the probability of each.

The choices' tokens make a trie. Where it branches, the model's probabilities of the next tokens
are divided among the branches; a choice's probability is the product along its way. So it is the
probability that the model says this choice, if it is asked for one token after the other and may
only say choices. Probabilities come from logits without penalties or temperature.

Most choices differ in their first token, which the prompt's pass decides: then no step runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Series
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwink.engine.sampler import Sampler
from qwink.errors import ShapeError
from qwink.inputs.tokenizer import Tokenizer
from qwink.runtime.sequence import Draft, Sequence
from qwink.types import Choice, Prompt, SamplingParams, TokenLogprob

Float = NDArray[np.float32]
Path = tuple[int, ...]

_END = -1  # stands for the tokens that end an answer


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
        texts: Series[str],
        num_logprobs: int | None = None,
    ) -> None:
        """`texts`: the choices, of which each is needed as a whole to be scored."""
        super().__init__(prompt, params, tokenizer, forbidden, vocab_size, num_logprobs)
        self._ends = np.array([token for token in tokenizer.eos_ids if token < vocab_size])
        self._texts = tuple(texts)
        self._paths = [tuple(tokenizer.encode_verbatim(text)) for text in texts]
        self._branches = _branches(self._paths)
        # Neighbours share most of their tokens, which stay in the cache from one to the next.
        self._wanted = sorted(path for path, after in self._branches.items() if len(after) > 1)
        self._scores: dict[Path, dict[int, float]] = {}  # natural logarithms
        self._reported: dict[Path, TokenLogprob] = {}  # of a token, with those before it
        self._cached: Path = ()  # tokens behind the prompt that are in the cache
        self._running: Path = ()  # those of the step that runs, from `_start`
        self._start = 0
        self._chosen: int | None = None
        self._choices: tuple[Choice, ...] = ()

    def check_room(self, room: int) -> int:
        """Most tokens that a choice takes. Raises ShapeError if there is not room for them."""
        longest = max(map(len, self._paths))
        if longest > room:
            message = f"one of them has {longest} tokens, and the context has {room} left"
            raise ShapeError("choices", message)
        return longest

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
        whole = self._chosen is not None and tuple(self.generated) == self._paths[self._chosen]
        return whole and not self._stops.stopped

    @property
    def may_draft(self) -> bool:
        return True

    def draft(self, most: int, guesses: int | None = None) -> Draft:
        """The tokens that must run, beyond the first of them; there are no guesses."""
        ids = self._missing()[1 : 1 + most]
        return Draft(ids, (1.0,) * len(ids), len(ids))

    def next_ids(self, num_drafts: int = 0) -> tuple[int, ...]:
        missing = self._missing()
        self._start = len(self._wanted[0]) - len(missing)
        self._running = missing[: 1 + num_drafts]
        return self._running

    @property
    def num_logits(self) -> int:
        """Logits before the first place that is wanted are not looked at."""
        places = self._places()
        first = next((i for i, place in enumerate(places) if place in self._wanted), -1)
        return len(places) - first if first >= 0 else 1

    def _places(self) -> list[Path]:
        """Where the tokens that run lead to, one after the other; the start before any ran."""
        before = self._cached[: self._start]
        return [before + self._running[: count + 1] for count in range(len(self._running))] or [()]

    def _missing(self) -> Path:
        """The tokens up to the next wanted place that are not in the cache."""
        target = self._wanted[0]
        shared = 0
        for token, cached in zip(target, self._cached, strict=False):
            if token != cached:
                break
            shared += 1
        # Of a place that was passed without a look, the last token runs again.
        return target[min(shared, len(target) - 1) :]

    def accept(self, logits: Float) -> str:
        places = self._places()
        for place, row in zip(places[-len(logits) :], logits, strict=True):
            self._look(place, row)
        self._cached = places[-1]
        if self._wanted:
            return ""
        if self._chosen is None:
            self._chosen = self._choose_text()
            self._wanted = self._unreported(self._paths[self._chosen])
            if self._wanted:
                return ""
        return self._say(self._paths[self._chosen])

    def _unreported(self, path: Path) -> list[Path]:
        """The places of the chosen text whose logprobs are asked for and not known."""
        if self._num_logprobs is None:
            return []
        return [
            path[:count] for count in range(len(path)) if path[: count + 1] not in self._reported
        ]

    def _look(self, path: Path, logits: Float) -> None:
        """Score the branches behind a place, given the logits there."""
        if path not in self._branches:
            return
        after = self._branches[path]
        if path not in self._scores:
            scores = self._sampler.scores(logits)
            values = {
                token: _log_sum(scores[self._ends]) if token == _END else float(scores[token])
                for token in after
            }
            total = _log_sum(list(values.values()))
            self._scores[path] = {
                token: value - total if total > -math.inf else -math.inf
                for token, value in values.items()
            }
        if self._num_logprobs is not None:
            for token in after - {_END}:
                found = self._sampler.logprobs(logits, token, self._num_logprobs)
                self._reported[(*path, token)] = TokenLogprob(token, found.chosen, found.top)
        self._wanted = [place for place in self._wanted if place != path]

    def _choose_text(self) -> int:
        logs = np.array([self._score(path) for path in self._paths], np.float32)
        sampler = Sampler(self._params, (), len(logs))
        order = np.argsort(-logs, kind="stable")
        self._choices = tuple(Choice(self._texts[i], math.exp(float(logs[i]))) for i in order)
        return sampler.sample(logs)

    def _score(self, path: Path) -> float:
        total = 0.0
        for count in range(len(path) + 1):
            scores = self._scores.get(path[:count])
            if scores is not None:
                total += scores[path[count] if count < len(path) else _END]
        return total

    def _say(self, path: Path) -> str:
        text = ""
        for count, token in enumerate(path):
            text += self._take(token, self._reported.get(path[: count + 1]))
            if self.finish_reason is not None:
                break
        if self.finish_reason is None:
            text += self._finish("stop")
        elif self.complete:  # it has as many tokens as are allowed
            self.finish_reason = "stop"
        self._num_shown += len(text)
        return text


def _branches(paths: Series[Path]) -> dict[Path, set[int]]:
    """The tokens that may follow each place of the trie; `_END` where a choice ends."""
    found: dict[Path, set[int]] = {}
    for path in paths:
        for count, token in enumerate((*path, _END)):
            found.setdefault(path[:count], set()).add(token)
    return found


def _log_sum(values: Any) -> float:
    """The logarithm of a sum of exponentials; minus infinity for none."""
    array = np.asarray(values, np.float64)
    peak = float(array.max()) if array.size else -math.inf
    return peak if peak == -math.inf else peak + math.log(float(np.exp(array - peak).sum()))
