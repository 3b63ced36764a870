"""A page that is read in strips: their requests run together, their texts become one answer.

Events come in reading order: the text of the first strip as it is generated, then that of the
second, which may be finished by then, and so on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher

from qwink.errors import QwinkError
from qwink.runtime.request import Listener, ReadStrip, Request, Ticket
from qwink.types import Event, FinishReason, Result, Usage

_ALIKE = 0.8  # lines that are this similar are the same line read twice
_MOST_REPEATED = 12  # lines of an overlap
_WORST: tuple[FinishReason, ...] = ("length", "repetition", "stop")

Submit = Callable[[Request, Listener], Ticket]


@dataclass(slots=True, eq=False)
class _Part:
    """A strip under way. `pieces` are events that wait for their turn, with its tokens so far."""

    strip: ReadStrip
    ticket: Ticket | None = None
    pieces: deque[tuple[Event, int]] = field(default_factory=deque)
    result: Result | None = None


class Joined:
    """The ticket of a request with strips; `cancel` may be called from any thread."""

    def __init__(self, request: Request, listener: Listener) -> None:
        self.request = request
        self._listener = listener
        self._parts = [_Part(strip) for strip in request.strips]
        self._later: Submit | None = None
        self._lock = threading.Lock()
        self._next = 0  # the first part that was not submitted
        self._current = 0  # the part whose text is told
        self._text: list[str] = []
        self._num_tokens = 0  # of the parts before the current one
        self._num_told = 0  # of the text so far
        self._ended = False

    def start(self, first: Submit, later: Submit, window: int) -> None:
        """Submit the first strips; `later` submits another one whenever one has ended.

        Raises what `first` raises; then nothing is under way.
        """
        self._later = later
        try:
            for number in range(min(window, len(self._parts))):
                self._submit_next(first if number == 0 else later)
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        """The answer is not wanted any more."""
        self._ended = True
        for part in self._parts:
            if part.ticket is not None:
                part.ticket.cancel()

    def _listens(self, number: int) -> Listener:
        def listen(message: Event | Exception) -> None:
            with self._lock:
                if not self._ended:
                    self._take(number, message)

        return listen

    def _take(self, number: int, message: Event | Exception) -> None:
        part = self._parts[number]
        if isinstance(message, Exception):
            self._end(message)
            return
        if message.stage is not None:
            if number == 0 and not self._text:
                self._listener(message)
            return
        tokens = len(part.strip.request.sequence.generated)
        part.pieces.append((message, tokens))
        if message.result is not None:
            part.result = message.result
            if self._next < len(self._parts) and self._later is not None:
                try:
                    self._submit_next(self._later)
                except QwinkError as error:
                    self._end(error)
        self._tell()

    def _submit_next(self, submit: Submit) -> None:
        number, self._next = self._next, self._next + 1
        part = self._parts[number]
        own, of_page = part.strip.request, self.request
        own.deadline, own.background = of_page.deadline, of_page.background
        own.page = id(self)
        part.ticket = submit(own, self._listens(number))

    def _tell(self) -> None:
        """Tell what can be told by now."""
        while not self._ended and self._current < len(self._parts):
            part = self._parts[self._current]
            if part.strip.overlaps and part.result is None:
                return  # which of its lines are new is known at its end
            if part.strip.overlaps:
                self._tell_new_lines(part)
            while part.pieces and not self._ended:
                event, tokens = part.pieces.popleft()
                self._tell_piece(event, self._num_tokens + tokens)
            if self._ended or part.result is None:
                return
            self._num_tokens += part.result.usage.completion_tokens
            self._current += 1
            if self._current < len(self._parts):
                self._say(self._parts[self._current].strip.joint)
        if not self._ended:
            self._end(self._result(cut=False))

    def _tell_piece(self, event: Event, num_tokens: int) -> None:
        self._num_told = num_tokens
        if event.text or event.logprobs:
            self._text.append(event.text)
            self._listener(replace(event, result=None))
        if num_tokens >= self.request.max_tokens and not self._is_last_end(event):
            self._end(self._result(cut=True))

    def _is_last_end(self, event: Event) -> bool:
        return event.result is not None and self._current == len(self._parts) - 1

    def _tell_new_lines(self, part: _Part) -> None:
        assert part.result is not None
        tokens = part.result.usage.completion_tokens
        text = without_repeated("".join(self._text), part.result.text)
        part.pieces.clear()
        part.pieces.append((Event(text), tokens))

    def _say(self, text: str) -> None:
        self._text.append(text)
        self._listener(Event(text))

    def _end(self, outcome: Exception | Result) -> None:
        self.cancel()
        self._listener(outcome if isinstance(outcome, Exception) else Event("", outcome))

    def _result(self, *, cut: bool) -> Result:
        results = [part.result for part in self._parts if part.result is not None]
        started = [part.strip.request for part in self._parts if part.ticket is not None]
        watch, request = self.request.watch, self.request
        watch.join([one.watch for one in started])
        reason: FinishReason = min(
            (result.finish_reason for result in results), key=_WORST.index, default="length"
        )
        warnings = dict.fromkeys((*request.warnings, *(w for r in results for w in r.warnings)))
        if cut:
            reason = "length"
            if request.cut_reason is not None:
                cause = f"stopped after {self._num_told} tokens (length): {request.cut_reason}"
                warnings[cause] = None
        return Result(
            "".join(self._text),
            reason,
            _usage(started, results, self._num_told),
            watch.timings(),
            request.model,
            tuple(warnings),
            task=request.task,
        )


Running = Ticket | Joined


def without_repeated(before: str, text: str) -> str:
    """The text without its first lines if they are the last ones of `before`, read again."""
    known, lines = before.rstrip("\n").split("\n"), text.split("\n")
    for count in range(min(_MOST_REPEATED, len(known), len(lines)), 0, -1):
        if all(_alike(a, b) for a, b in zip(known[-count:], lines[:count], strict=True)):
            return "\n".join(lines[count:])
    return text


def _alike(first: str, second: str) -> bool:
    return SequenceMatcher(None, first, second, autojunk=False).ratio() >= _ALIKE


def _usage(requests: list[Request], results: list[Result], num_told: int) -> Usage:
    """Prompts of all strips that were begun, and the tokens of the text that was told."""
    prompts = [request.sequence.prompt for request in requests]
    return Usage(
        prompt_tokens=sum(map(len, prompts)),
        completion_tokens=num_told,
        image_tokens=sum(span.length for prompt in prompts for span in prompt.images),
        cached_tokens=sum(result.usage.cached_tokens for result in results),
        accepted_prediction_tokens=sum(one.sequence.num_accepted for one in requests),
        rejected_prediction_tokens=sum(one.sequence.num_rejected for one in requests),
    )
