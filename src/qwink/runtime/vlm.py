"""The façade: encode pictures, ask and stream. CLI, server and lab enter here."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from queue import SimpleQueue
from typing import Any

from qwink.cache.embeddings import EmbeddingCache, EncoderOutput, Store
from qwink.engine.base import Engine
from qwink.engine.sampler import validate
from qwink.errors import EngineStopped, OptionError
from qwink.inputs.chat import ChatTemplate
from qwink.inputs.prompt import build_prompt, check_context
from qwink.inputs.tokenizer import Tokenizer
from qwink.runtime.conversation import Conversation
from qwink.runtime.memory import Memory
from qwink.runtime.messages import last_result, user_message
from qwink.runtime.preparation import ImageOptions, prepare_image
from qwink.runtime.request import Request
from qwink.runtime.scheduler import Limits, Scheduler
from qwink.runtime.sequence import Sequence as TokenSequence
from qwink.runtime.stopwatch import Stopwatch
from qwink.runtime.turns import Turns
from qwink.types import (
    EncodedImage,
    Event,
    ImageSource,
    Message,
    Result,
    SamplingParams,
)

DEFAULT_CONTEXT = 16_384


@dataclass(frozen=True, slots=True)
class Model:
    """What a loaded model consists of."""

    name: str
    engine: Engine
    tokenizer: Tokenizer
    template: ChatTemplate
    sampling: SamplingParams  # the model's own defaults


class VLM:
    """A resident model. Safe to use from several threads, whose answers are made together."""

    def __init__(
        self,
        model: Model,
        context: int | None = None,
        limits: Limits | None = None,
        memory: Memory | None = None,
        store: Store | None = None,
    ) -> None:
        """`context` limits prompt plus answer, in tokens; `store` keeps encoded images.

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
        vision = model.engine.config.vision
        output = EncoderOutput(
            vision.out_hidden_size, len(vision.deepstack_layers), vision.merge_size
        )
        self.scheduler = Scheduler(
            model.engine,
            self.context,
            self.memory.kv_bytes,
            limits or Limits(),
            EmbeddingCache(self.memory.image_bytes, output, store),
        )
        # The engine thread must not outlive the last reference to the model.
        self._finalizer = weakref.finalize(self, self.scheduler.close, 0.0)

    def close(self, timeout_s: float = 30.0) -> None:
        """Finish what is under way, for up to `timeout_s`, and let go of the model.

        Its memory and threads are freed at once, unless something else refers to its engine.
        """
        self._finalizer.detach()
        self.scheduler.close(timeout_s)
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
        return self._name

    @property
    def engine(self) -> Engine:
        """Raises EngineStopped once it is closed."""
        return self._open_model().engine

    @property
    def tokenizer(self) -> Tokenizer:
        return self._open_model().tokenizer

    @property
    def sampling(self) -> SamplingParams:
        """The model's own defaults."""
        return self._sampling

    def encode(self, image: ImageSource, question: str = "", **options: Any) -> EncodedImage:
        """Encode an image once, to ask about it many times.

        `options` are those of `ImageOptions`: task, min_pixels, max_pixels, resample; `question`
        helps task "auto" to choose a size. Raises ImageError, OptionError.
        """
        engine = self._open_model().engine  # before the work of decoding
        watch = Stopwatch()
        prepared = prepare_image(image, question, _image_options(options), engine, watch)
        if isinstance(prepared.content, EncodedImage):
            return prepared.content
        patches, embeddings = prepared.content, self.scheduler.embeddings
        found = embeddings.get(prepared.key, prepared.grid)
        if found is not None:
            return found
        return self.scheduler.call(lambda: embeddings.put(engine.encode([patches])[0]))

    def ask(
        self,
        images: ImageSource | Sequence[ImageSource] | None = None,
        question: str | None = None,
        *,
        system: str | None = None,
        **options: Any,
    ) -> Result:
        """Answer a question about one image, several or none.

        `options` are those of `ImageOptions` (task, min_pixels, max_pixels, resample) and of
        `SamplingParams` (max_tokens, temperature, top_p, seed, stop, ...), which default to the
        model's own. Raises ImageError, PromptError (ContextOverflow), OptionError, GenerationError.
        """
        return last_result(self.stream(images, question, system=system, **options))

    def stream(
        self,
        images: ImageSource | Sequence[ImageSource] | None = None,
        question: str | None = None,
        *,
        system: str | None = None,
        **options: Any,
    ) -> Iterator[Event]:
        """As `ask`, piece by piece; the last event carries the whole result."""
        image_options, sampling = self.split_options(options)
        message = user_message(images, question, image_options.task)
        turns = (message,) if system is None else (Message("system", (system,)), message)
        return self.stream_messages(turns, image_options, sampling)

    def conversation(self, system: str | None = None) -> Conversation:
        """Several questions, each knowing what was said before."""
        return Conversation(self, system)

    def split_options(self, options: dict[str, Any]) -> tuple[ImageOptions, SamplingParams]:
        """Sort keyword options by whom they concern. Raises OptionError for an unknown one."""
        names = {field.name for field in fields(SamplingParams)}
        sampling = {key: value for key, value in options.items() if key in names}
        if isinstance(sampling.get("stop"), str):
            sampling["stop"] = (sampling["stop"],)
        elif isinstance(sampling.get("stop"), list):
            sampling["stop"] = tuple(sampling["stop"])
        params = replace(self.sampling, **sampling)
        validate(params)
        rest = {key: value for key, value in options.items() if key not in names}
        return _image_options(rest), params

    def stream_messages(
        self,
        messages: Sequence[Message],
        image_options: ImageOptions,
        sampling: SamplingParams,
        watch: Stopwatch | None = None,
    ) -> Iterator[Event]:
        """Answer a whole conversation whose last turn is the user's. What `stream` is made of."""
        request = self.prepare(messages, image_options, sampling, watch=watch)
        inbox: SimpleQueue[Event | Exception] = SimpleQueue()
        ticket = self.scheduler.submit(request, inbox.put)
        try:
            while True:
                message = inbox.get()
                if isinstance(message, Exception):
                    raise message
                yield message
                if message.result is not None:
                    return
        finally:
            ticket.cancel()  # frees the slot when the caller stops listening

    def prepare(
        self,
        messages: Sequence[Message],
        image_options: ImageOptions,
        sampling: SamplingParams,
        num_logprobs: int | None = None,
        watch: Stopwatch | None = None,
        continue_final: bool = False,
    ) -> Request:
        """A conversation made ready for the scheduler: decode, resize, tokenise; no model work.

        With `continue_final`, the answer continues the last turn, which is the assistant's.

        An image is sized for the text of its own turn, not of later ones, so that it stays the
        same as the conversation goes on. `watch` may have been running for a while.
        Raises ImageError, PromptError (ContextOverflow), OptionError.
        """
        steps = self.prepare_steps(
            messages, image_options, sampling, num_logprobs, watch, continue_final
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
        sampling: SamplingParams,
        num_logprobs: int | None = None,
        watch: Stopwatch | None = None,
        continue_final: bool = False,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Generator[None, None, Request]:
        """As `prepare`, giving way after each picture, so that requests can take turns.

        `cancelled` is asked often, also from within a picture; then it raises Cancelled.
        """
        model = self._open_model()  # before the work of decoding
        watch = watch or Stopwatch()
        preparing = Turns(model.engine, model.tokenizer, self.context, watch, cancelled)
        turns = yield from preparing.prepare(messages, image_options)
        images = preparing.images
        with watch.stage("prefill"):
            merge_size = model.engine.config.vision.merge_size
            prompt = build_prompt(
                turns,
                model.tokenizer,
                model.template,
                merge_size,
                continue_final=continue_final,
            )
        check_context(prompt, self.context)
        room = self.context - len(prompt)
        sampling = replace(sampling, max_tokens=min(sampling.max_tokens, room))
        sequence = TokenSequence(
            prompt, sampling, model.tokenizer, self._forbidden, self._vocab_size, num_logprobs
        )
        warnings = dict.fromkeys(w for image in images.values() for w in image.warnings)
        return Request(
            sequence, tuple(images.values()), sampling.max_tokens, self.name, watch, tuple(warnings)
        )


def _image_options(options: dict[str, Any]) -> ImageOptions:
    known = [field.name for field in fields(ImageOptions)]
    for name in options:
        if name not in known:
            raise OptionError(f"unknown option {name!r}; images take {', '.join(known)}")
    return ImageOptions(**options)
