"""The façade: encode pictures, ask and stream. CLI, server and lab enter here."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Unpack

from qwink import __version__
from qwink.cache.embeddings import EmbeddingCache, EncoderOutput, Shared, Store
from qwink.engine.base import Engine
from qwink.errors import EngineStopped, OptionError
from qwink.inputs.tokenizer import Tokenizer
from qwink.inputs.tools import Tool
from qwink.native import capabilities
from qwink.runtime.conversation import Conversation
from qwink.runtime.drafting import NO_HINTS, DraftHints, Drafting, Speculate
from qwink.runtime.grammars import Grammars
from qwink.runtime.listening import listen, listen_async
from qwink.runtime.memory import Memory
from qwink.runtime.messages import last_result, user_message
from qwink.runtime.options import (
    AskKeywords,
    ImageKeywords,
    check_timeout,
    image_options,
    split,
)
from qwink.runtime.preparation import ImageOptions, prepare_image
from qwink.runtime.request import Request
from qwink.runtime.requests import MadeOf, Model, RequestMaker
from qwink.runtime.sampling import AskedSampling
from qwink.runtime.scheduler import Scheduler
from qwink.runtime.stopwatch import Stopwatch
from qwink.runtime.waiting import Limits
from qwink.types import (
    EncodedImage,
    Event,
    ImageSource,
    Message,
    Result,
    SamplingParams,
)

DEFAULT_CONTEXT = 16_384


class VLM:
    """A model that stays in memory, made by `qwink.load`.

    Several threads and tasks may use it at once; their answers are made together. It is a context
    manager, which closes it:

    ```python
    with qwink.load("nano") as closing:
        print(closing.ask("examples/sign.png", "What does it say?").text)  # Exit 7B
    ```
    """

    def __init__(
        self,
        model: Model,
        context: int | None = None,
        limits: Limits | None = None,
        memory: Memory | None = None,
        store: Store | None = None,
        speculate: Speculate = "auto",
        shared: Shared | None = None,
    ) -> None:
        """`context` limits prompt plus answer, in tokens; `store` keeps encoded images.

        `shared` keeps them for several machines; it is closed with the model.

        `speculate`: whether tokens are drafted; see `Drafting`.
        Raises OptionError if the model or the memory budget does not allow that many tokens.
        """
        most = model.engine.config.text.max_position_embeddings
        if context is not None and not 1 < context <= most:
            raise OptionError(f"context is {context}; this model takes 2 to {most} tokens")
        self.memory = memory or Memory.default()
        fits = self.memory.kv_bytes // max(1, model.engine.bytes_per_token)
        if (context or 2) > fits:
            wanted = (context or 2) * model.engine.bytes_per_token
            raise OptionError(
                f"a context of {context or 2} tokens takes {wanted >> 20} MiB of keys and values, "
                f"and the memory budget has {self.memory.kv_bytes >> 20} for them; "
                "raise --memory-mb or lower --context"
            )
        self.context = context or min(most, DEFAULT_CONTEXT, fits)
        self._model: Model | None = model  # None once it is closed
        self._name, self._sampling = model.name, model.sampling
        self._vocab_size = model.engine.config.text.vocab_size
        self._forbidden = model.tokenizer.forbidden_ids(self._vocab_size)
        self.drafting = Drafting(model.engine.traits, model.tokenizer, speculate)
        self._grammars = Grammars(model.tokenizer, self._vocab_size, self._forbidden)
        vision = model.engine.config.vision
        output = EncoderOutput(
            vision.out_hidden_size,
            len(vision.deepstack_layers),
            vision.merge_size,
            # Other kernels and other versions may round differently.
            "-".join((__version__, *model.engine.about.values(), capabilities().kernels)),
        )
        self.scheduler = Scheduler(
            model.engine,
            self.context,
            self.memory.kv_bytes,
            limits or Limits(),
            EmbeddingCache(self.memory.image_bytes, output, store, shared),
        )
        # The engine thread must not outlive the last reference to the model.
        self._finalizer = weakref.finalize(self, self.scheduler.close, 0.0)

    def close(self, timeout_s: float = 30.0) -> None:
        """Wait up to `timeout_s` seconds for the requests under way, then free the model.

        Its memory and threads are freed before the call returns, unless something else refers to
        its engine. Later calls raise EngineStopped.
        """
        self._finalizer.detach()
        self.scheduler.close(timeout_s)
        self._grammars.close()
        self._model = None

    def _open_model(self) -> Model:
        """Raises EngineStopped once it is closed, and in a child of a fork."""
        self.scheduler.check()
        if self._model is None:
            raise EngineStopped("the model was closed; load it again")
        return self._model

    def __enter__(self) -> VLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        """The model's name."""
        return self._name

    @property
    def engine(self) -> Engine:
        """The engine that computes. Raises EngineStopped once it is closed."""
        return self._open_model().engine

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer. Raises EngineStopped once it is closed."""
        return self._open_model().tokenizer

    @property
    def sampling(self) -> SamplingParams:
        """The model's own defaults of the options of answers."""
        return self._sampling

    def encode(
        self, image: ImageSource, question: str = "", **options: Unpack[ImageKeywords]
    ) -> EncodedImage:
        """Run the vision encoder on an image once, to ask about it many times.

        Task "auto" chooses the size by the words of `question`; without one, by the picture.
        `options` are those of pictures.
        Raises ImageError, OptionError, OutOfMemory, EngineStopped.

        ```python
        circle = vlm.encode("examples/red-circle.png")
        print(vlm.ask(circle, "What shape is it?").text)  # A circle.
        print(vlm.ask(circle, "What colour is the circle?").text)  # Red.
        ```
        """
        chosen = image_options(options)
        engine = self._open_model().engine  # before the work of decoding
        prepared = prepare_image(image, question, chosen, engine, Stopwatch())
        if isinstance(prepared.content, EncodedImage):
            return prepared.content
        patches, embeddings = prepared.content, self.scheduler.embeddings
        embeddings.prefetch(prepared.key, prepared.grid)
        embeddings.wait(prepared.key)
        encoded = embeddings.get(prepared.key, prepared.grid)
        if encoded is None:
            encoded = self.scheduler.call(lambda: embeddings.put(engine.encode([patches])[0]))
        return replace(encoded, original_size=prepared.size)

    def ask(
        self,
        images: ImageSource | Sequence[ImageSource] | None = None,
        question: str | None = None,
        *,
        system: str | None = None,
        timeout: float | None = None,
        **options: Unpack[AskKeywords],
    ) -> Result:
        """Answer a question about one image, several or none, and wait for the whole answer.

        An image is a path, a data URL, a URL that `fetch_policy` allows, bytes, a file object open
        for reading bytes, a PIL image, an `EncodedImage`, or an array of shape [H, W], [H, W, 3]
        or [H, W, 4]: uint8, or floats in 0..1. Several are a list or tuple, and the question is
        about all of them together. Without a question, the task's default question is asked.

        `schema`, `choices`, `regex` or `grammar` give the shape that the answer must have;
        `Result.parsed` is then the answer as data, and None if the answer was cut off. Such
        answers are greedy too.

        `system` is the text of a system turn before the question. `timeout` is in seconds, for
        everything together. `options` are those of pictures and of answers.

        Raises ImageError if a picture cannot be used (`index` says which), PromptError,
        ContextOverflow if the prompt does not fit, OptionError, Overloaded, DeadlineExceeded,
        GenerationError, OutOfMemory, EngineStopped.

        ```python
        result = vlm.ask("examples/sign.png", "What does it say?", timeout=60)
        print(result.text, result.finish_reason)  # Exit 7B stop
        ```
        """
        return last_result(self.stream(images, question, system=system, timeout=timeout, **options))

    def stream(
        self,
        images: ImageSource | Sequence[ImageSource] | None = None,
        question: str | None = None,
        *,
        system: str | None = None,
        timeout: float | None = None,
        **options: Unpack[AskKeywords],
    ) -> Iterator[Event]:
        """As `ask`, piece by piece. The last event carries the whole result.

        Nothing is computed before the first event is taken. Closing the iterator cancels the
        request. Options of a wrong name or type raise at once, everything else while iterating.

        ```python
        for event in vlm.stream("examples/red-circle.png", "What shape is it?"):
            print(event.text, end="")  # A circle.
        ```
        """
        return self._stream(self._preparation(images, question, system, timeout, options))

    def _stream(self, prepare: Callable[[], Request]) -> Iterator[Event]:
        yield from listen(self.scheduler, prepare())

    async def aask(
        self,
        images: ImageSource | Sequence[ImageSource] | None = None,
        question: str | None = None,
        *,
        system: str | None = None,
        timeout: float | None = None,
        **options: Unpack[AskKeywords],
    ) -> Result:
        """As `ask`, for an event loop. Cancelling the task cancels the request.

        ```python
        import asyncio


        async def read_all(*paths: str) -> list[str]:
            asked = [vlm.aask(path, "What does it say?") for path in paths]
            return [result.text for result in await asyncio.gather(*asked)]


        texts = asyncio.run(read_all("examples/sign.png", "examples/receipt-line.png"))
        print(texts)  # ['Exit 7B', 'Total 42.50']
        ```
        """
        result = None
        stream = self.astream(images, question, system=system, timeout=timeout, **options)
        async with aclosing(stream) as events:
            async for event in events:
                result = event.result
        assert result is not None, "a stream ends with its result or raises"
        return result

    async def astream(
        self,
        images: ImageSource | Sequence[ImageSource] | None = None,
        question: str | None = None,
        *,
        system: str | None = None,
        timeout: float | None = None,
        **options: Unpack[AskKeywords],
    ) -> AsyncGenerator[Event, None]:
        """As `stream`, for an event loop.

        ```python
        async def show() -> None:
            async for event in vlm.astream("examples/sign.png", "What does it say?"):
                print(event.text, end="")


        asyncio.run(show())  # Exit 7B
        ```
        """
        prepare = self._preparation(images, question, system, timeout, options)
        request = await asyncio.to_thread(prepare)
        async with aclosing(listen_async(self.scheduler, request)) as events:
            async for event in events:
                yield event

    def _preparation(
        self,
        images: ImageSource | Sequence[ImageSource] | None,
        question: str | None,
        system: str | None,
        timeout: float | None,
        options: AskKeywords,
    ) -> Callable[[], Request]:
        """What makes the request of `ask`, once its options are checked."""
        check_timeout(timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        chosen, sampling = self.split_options(options)
        message = user_message(images, question, chosen.task)
        turns = (message,) if system is None else (Message("system", (system,)), message)

        def prepare() -> Request:
            request = self.prepare(turns, chosen, sampling)
            request.deadline = deadline
            return request

        return prepare

    def conversation(self, system: str | None = None) -> Conversation:
        """A conversation, in which each question is asked together with the turns before it."""
        return Conversation(self, system)

    def split_options(self, options: Mapping[str, Any]) -> tuple[ImageOptions, AskedSampling]:
        """Sort keyword options by whom they concern. Raises OptionError for an unknown one."""
        images, sampling, shape = split(options)
        return ImageOptions(**images), AskedSampling.of(self.sampling, sampling, shape)

    def stream_messages(
        self,
        messages: Sequence[Message],
        image_options: ImageOptions,
        sampling: SamplingParams | AskedSampling,
        watch: Stopwatch | None = None,
        deadline: float | None = None,
    ) -> Iterator[Event]:
        """Answer a whole conversation whose last turn is the user's.

        `deadline` is on the clock of `time.monotonic`.
        """
        request = self.prepare(messages, image_options, sampling, watch=watch)
        request.deadline = deadline
        yield from listen(self.scheduler, request)

    def prepare(
        self,
        messages: Sequence[Message],
        image_options: ImageOptions,
        sampling: SamplingParams | AskedSampling,
        num_logprobs: int | None = None,
        watch: Stopwatch | None = None,
        continue_final: bool = False,
        hints: DraftHints = NO_HINTS,
    ) -> Request:
        """A conversation made ready for the scheduler: decode, resize, tokenise; no model work.

        With `continue_final`, the answer continues the last turn, which is the assistant's.

        An image is sized for the text of its own turn, not of later ones, so that it stays the
        same as the conversation goes on. `watch` may have been running for a while. The task may
        change an AskedSampling, but not SamplingParams.
        Raises ImageError, PromptError (ContextOverflow), OptionError (ShapeError).
        """
        steps = self.prepare_steps(
            messages, image_options, sampling, num_logprobs, watch, continue_final, hints=hints
        )
        while True:
            try:
                next(steps)
            except StopIteration as end:
                request: Request = end.value
                return request

    def prepare_steps(
        self,
        messages: Sequence[Message],
        image_options: ImageOptions,
        sampling: SamplingParams | AskedSampling,
        num_logprobs: int | None = None,
        watch: Stopwatch | None = None,
        continue_final: bool = False,
        cancelled: Callable[[], bool] = lambda: False,
        tools: Sequence[Tool] = (),
        hints: DraftHints = NO_HINTS,
    ) -> Generator[None, None, Request]:
        """As `prepare`, giving way after each picture, so that requests can take turns.

        `cancelled` is asked often, also from within a picture; then it raises Cancelled. `tools`
        are described in the prompt; `sampling.shape` says how the answer may call them. `hints`
        help to draft the answer, and do not change it.
        """
        model = self._open_model()  # before the work of decoding
        maker = RequestMaker(
            model,
            self.context,
            self._grammars,
            self.drafting,
            self._forbidden,
            self.scheduler.embeddings.prefetch,
        )
        made = MadeOf(messages, image_options, sampling, num_logprobs, continue_final, tools, hints)
        return (yield from maker.steps(made, watch or Stopwatch(), cancelled))
