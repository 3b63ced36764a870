"""Do batches, grammars and drafts leave answers as they are? Counts the answers that differ.

    python -m qwink.lab.exactness MODEL [--requests 1000] [--tokens 32]

The same requests run one by one without drafts, in batches of up to eight without, and in such
batches with drafts. Greedy and drawn answers, free ones and ones with a schema, choices or a
pattern are mixed in each batch. An answer is the same if its text, its end, and the
log-probabilities of all its tokens are the same to the last bit.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from qwink.errors import OptionError
from qwink.lab.record import RESULTS, record, write
from qwink.runtime.drafting import DraftHints
from qwink.runtime.listening import listen
from qwink.runtime.messages import user_message
from qwink.runtime.models import load
from qwink.runtime.vlm import VLM
from qwink.types import Result, TokenLogprob

SIZES = (1, 8, 3, 5, 2, 8, 4, 7)  # of batches
_ITEM = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "count": {"type": "integer"}},
    "required": ["name", "count"],
    "additionalProperties": False,
}
SHAPES: tuple[dict[str, Any], ...] = (
    {},
    {"schema": _ITEM},
    {"choices": ["red", "green", "a dark green"]},
    {},
    {"regex": r"[A-Z]{2}-[0-9]{3,9}"},
    {"schema": {"type": "array", "items": _ITEM, "maxItems": 3}},
)
STYLES: tuple[dict[str, Any], ...] = (
    {"temperature": 0},
    {"temperature": 0.7},
    {"temperature": 0, "repetition_penalty": 1.2},
    {"temperature": 1.2, "top_p": 0.9},
    {"temperature": 0.4, "top_k": 5, "presence_penalty": 0.5},
)
QUESTIONS = (
    "What is the total? The total is 12.50, paid in cash.",
    "Repeat: one, two, three, one, two, three, one, two, three.",
    "Describe it.",
)

Told = tuple[Result, list[TokenLogprob]]


@dataclass(frozen=True, slots=True)
class Way:
    """Answers in one way, compared with those that ran alone and without drafts."""

    way: Literal["alone", "together", "together_drafts"]
    num_answers: int
    num_different: int
    tokens: int
    accepted: int
    rejected: int


@dataclass(frozen=True, slots=True)
class Exactness:
    """`greedy`, `drawn`, `shaped`: how many of the requests are of this kind."""

    model: str
    requests: int
    greedy: int
    drawn: int
    shaped: int
    ways: tuple[Way, ...]


def requests(count: int, num_tokens: int) -> list[tuple[str, dict[str, Any]]]:
    """Questions with their options; every combination of shape and style occurs."""
    found = []
    for number in range(count):
        shape = SHAPES[number % len(SHAPES)]
        # Choices are not drawn.
        style = {} if "choices" in shape else STYLES[number // len(SHAPES) % len(STYLES)]
        options = {"max_tokens": num_tokens, **shape, **style, "seed": number % 37}
        found.append((QUESTIONS[number % 7 % len(QUESTIONS)], options))
    return found


def answers(
    vlm: VLM, asked: Sequence[tuple[str, dict[str, Any]]], sizes: Sequence[int]
) -> list[Told]:
    """Answers to batches of these sizes in turn. Each fifth has its question as a prediction."""

    def answer(number: int) -> Told:
        question, options = asked[number]
        chosen, sampling = vlm.split_options(options)
        hints = DraftHints(prediction=question if number % 5 == 0 else "")
        turns = [user_message((), question, chosen.task)]
        request = vlm.prepare(turns, chosen, sampling, 2, hints=hints)
        logprobs: list[TokenLogprob] = []
        for event in listen(vlm.scheduler, request):
            logprobs += event.logprobs
            if event.result is not None:
                return event.result, logprobs
        raise AssertionError("a stream ends with its result or raises")

    found: list[Told] = []
    start = turn = 0
    with ThreadPoolExecutor(max(sizes)) as pool:
        while start < len(asked):
            end = min(start + sizes[turn % len(sizes)], len(asked))
            found += pool.map(answer, range(start, end))
            start, turn = end, turn + 1
    return found


def same(one: Told, two: Told) -> bool:
    """Whether text, end, number of tokens, and all log-probabilities are the same."""
    facts = [(r.text, r.finish_reason, r.usage.completion_tokens, found) for r, found in (one, two)]
    return facts[0] == facts[1]


def measure(model: str, count: int, num_tokens: int) -> Exactness:
    """Raises OptionError if the model's answers are not drafted."""
    asked = requests(count, num_tokens)
    ways: list[Way] = []
    reference: list[Told] = []
    for way in ("alone", "together", "together_drafts"):
        drafts = way == "together_drafts"
        with load(model, speculate="auto" if drafts else "off") as vlm:
            if drafts and vlm.drafting.why_off is not None:
                raise OptionError(f"there are no drafts: {vlm.drafting.why_off}")
            begun = time.monotonic()
            found = answers(vlm, asked, (1,) if way == "alone" else SIZES)
            name = vlm.name
        reference = reference or found
        usage = [result.usage for result, _ in found]
        ways.append(
            Way(
                way,
                len(found),
                sum(not same(*pair) for pair in zip(found, reference, strict=True)),
                sum(one.completion_tokens for one in usage),
                sum(one.accepted_prediction_tokens for one in usage),
                sum(one.rejected_prediction_tokens for one in usage),
            )
        )
        print(ways[-1], f"{time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    drawn = sum(options.get("temperature", 0) > 0 for _, options in asked)
    shaped = sum(any(name in options for name in ("schema", "choices", "regex"))
                 for _, options in asked)  # fmt: skip
    return Exactness(name, count, count - drawn, drawn, shaped, tuple(ways))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", nargs="+", help="nano, checkpoints or artifacts")
    parser.add_argument("--requests", type=int, default=1000, help="of each model")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--out", type=Path, default=RESULTS / "exactness.json")
    args = parser.parse_args(arguments)
    found = [measure(model, args.requests, args.tokens) for model in args.model]
    write(args.out, record("exactness", {"models": [asdict(one) for one in found]}).document())
    if any(way.num_different for one in found for way in one.ways):
        raise SystemExit("some answers differ")


if __name__ == "__main__":
    main()
