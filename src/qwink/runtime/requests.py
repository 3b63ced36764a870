"""From a conversation to requests that the scheduler can run."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from qwink.engine.base import Engine
from qwink.errors import Cancelled
from qwink.inputs.chat import ChatTemplate
from qwink.inputs.prompt import build_prompt, check_context
from qwink.inputs.tokenizer import Tokenizer
from qwink.inputs.tools import Tool
from qwink.runtime.choosing import ChoiceSequence
from qwink.runtime.drafting import NO_HINTS, DraftHints, Drafting
from qwink.runtime.grammars import Grammars
from qwink.runtime.preparation import ImageOptions
from qwink.runtime.request import CUT_BY_LIMIT, ReadStrip, Request
from qwink.runtime.sampling import AskedSampling
from qwink.runtime.sequence import Sequence as TokenSequence
from qwink.runtime.stopwatch import Stopwatch
from qwink.runtime.strips import CutPage, PageCutter
from qwink.runtime.turns import Turns
from qwink.types import Grid, Message, SamplingParams, Task


@dataclass(frozen=True, slots=True)
class Model:
    """What a loaded model consists of."""

    name: str
    engine: Engine
    tokenizer: Tokenizer
    template: ChatTemplate
    sampling: SamplingParams  # the model's own defaults


@dataclass(frozen=True, slots=True)
class MadeOf:
    """What a request is made of.

    `continue_final`: the answer continues the last turn, which is the assistant's. `tools` are
    described in the prompt; `sampling.shape` says how the answer may call them. `hints` help to
    draft the answer, and do not change it.
    """

    messages: Sequence[Message]
    images: ImageOptions
    sampling: SamplingParams | AskedSampling
    num_logprobs: int | None = None
    continue_final: bool = False
    tools: Sequence[Tool] = ()
    hints: DraftHints = field(default=NO_HINTS)


class RequestMaker:
    """Makes the requests of a model with room for `context` tokens."""

    def __init__(
        self,
        model: Model,
        context: int,
        grammars: Grammars,
        drafting: Drafting,
        forbidden: NDArray[np.int64],
        prefetch: Callable[[str, Grid], None],
    ) -> None:
        """`prefetch` is told the key and grid of each image as soon as it is known."""
        self._model, self._context = model, context
        self._grammars, self._drafting, self._forbidden = grammars, drafting, forbidden
        self._prefetch = prefetch

    def steps(
        self, made: MadeOf, watch: Stopwatch, cancelled: Callable[[], bool]
    ) -> Generator[None, None, Request]:
        """Decode, resize, tokenise; no model work. Gives way after each picture.

        `cancelled` is asked often, also from within a picture; then it raises Cancelled.
        Raises ImageError, PromptError (ContextOverflow), OptionError (ShapeError).
        """

        def check() -> None:
            if cancelled():
                raise Cancelled("the request was cancelled")

        cutter = PageCutter(self._model.engine, watch, check)
        page = cutter.cut(made.messages, made.images, _obstacle(made))
        if page is None:
            return (yield from self._whole(made, watch, cancelled))
        yield
        return (yield from self._of_strips(made, page, watch, cancelled))

    def _of_strips(
        self, made: MadeOf, page: CutPage, watch: Stopwatch, cancelled: Callable[[], bool]
    ) -> Generator[None, None, Request]:
        strips = []
        for turns in page.strips:
            own = replace(made, messages=turns.messages, images=replace(made.images, strips="off"))
            request = yield from self._whole(own, watch.again(), cancelled)
            strips.append(ReadStrip(request, turns.overlaps, turns.joint))
        return replace(
            strips[0].request,
            watch=watch,
            warnings=page.warnings,
            strips=tuple(strips),
            max_tokens=_most_tokens(made, page.task, len(strips)),
            cut_reason=CUT_BY_LIMIT,
        )

    def _whole(
        self, made: MadeOf, watch: Stopwatch, cancelled: Callable[[], bool]
    ) -> Generator[None, None, Request]:
        model, sampling = self._model, made.sampling
        # Not `made` itself in what follows: it holds the pictures as they came.
        num_logprobs, hints = made.num_logprobs, made.hints
        vocab_size = model.engine.config.text.vocab_size
        shape = sampling.shape if isinstance(sampling, AskedSampling) else None
        ignored: tuple[str, ...] = ()
        if shape is not None and shape.kind != "choices":  # refused before the work
            _, ignored = self._grammars.constraint(shape)
        preparing = Turns(
            model.engine, model.tokenizer, self._context, watch, cancelled, self._prefetch
        )
        turns = yield from preparing.prepare(made.messages, made.images)
        with watch.stage("prefill"):
            merge_size = model.engine.config.vision.merge_size
            prompt = build_prompt(
                turns,
                model.tokenizer,
                model.template,
                merge_size,
                continue_final=made.continue_final,
                tools=made.tools,
            )
        check_context(prompt, self._context)
        room = self._context - len(prompt)
        if isinstance(sampling, AskedSampling):
            sampling = sampling.for_task(preparing.task)
        full = f"the context of {self._context} is full" if sampling.max_tokens >= room else None
        chosen = replace(sampling, max_tokens=min(sampling.max_tokens, room))

        def sequence(number: int) -> TokenSequence:
            seed = None if chosen.seed is None else chosen.seed + number
            params = replace(chosen, seed=seed)
            common = model.tokenizer, self._forbidden, vocab_size
            if shape is not None and shape.kind == "choices":
                return ChoiceSequence(prompt, params, *common, shape, room, num_logprobs)
            return TokenSequence(
                prompt,
                params,
                *common,
                num_logprobs,
                self._drafting.drafter(prompt, hints, shape),
                constraint=None if shape is None else self._grammars.constraint(shape)[0],
            )

        first, most = sequence(0), chosen.max_tokens
        if isinstance(first, ChoiceSequence):
            most = max(most, first.num_reserved)
        return Request(
            first,
            tuple(preparing.images.values()),
            most,
            model.name,
            watch,
            (*ignored, *preparing.warnings, *self._drafting.unused(made.hints)),
            cut_reason=full or CUT_BY_LIMIT,
            task=preparing.task,
            shown=preparing.shown,
            shape=shape,
            another=sequence,
        )


def _most_tokens(made: MadeOf, task: Task, num_strips: int) -> int:
    """Of the whole answer. By default each strip may take as many as a picture does."""
    asked = made.sampling
    if not isinstance(asked, AskedSampling):
        return asked.max_tokens
    most = asked.for_task(task).max_tokens
    return most if "max_tokens" in asked.given else most * num_strips


def _obstacle(made: MadeOf) -> str | None:
    """What keeps the answers about strips from being joined."""
    asked = made.sampling
    if isinstance(asked, AskedSampling) and asked.shape is not None:
        return "a shape of the answer"
    if made.tools:
        return "tools"
    if made.num_logprobs is not None:
        return "logprobs"
    params = asked.params if isinstance(asked, AskedSampling) else asked
    if params.stop:
        return "stop texts"
    if made.continue_final:
        return "a started answer"
    return None
