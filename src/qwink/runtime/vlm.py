"""The façade: load a model, encode pictures, ask and stream. CLI, jobs and bench enter here."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from qwink.cache.memory import MemoryCache
from qwink.engine.base import Engine
from qwink.engine.sampler import validate
from qwink.errors import ContextOverflow, OptionError, PromptError
from qwink.inputs.chat import ChatTemplate
from qwink.inputs.prompt import build_prompt
from qwink.inputs.tokenizer import Tokenizer
from qwink.runtime.preparation import ImageOptions, PreparedImage, prepare_image
from qwink.runtime.sequence import Sequence as Answer
from qwink.runtime.stopwatch import Stopwatch
from qwink.types import (
    EncodedImage,
    Event,
    ImageSource,
    Message,
    Patches,
    Prompt,
    Result,
    SamplingParams,
    Task,
    Usage,
)

PREFILL_CHUNK = 512  # tokens; bounds the memory of a long prompt's attention
CAPACITY_STEP = 1024  # caches are opened in these sizes, so that they can be used again
DEFAULT_CONTEXT = 16_384
EMBEDDING_CACHE_BYTES = 256 << 20

# What is asked when the user asks nothing.
DEFAULT_QUESTIONS: dict[Task, str] = {
    "auto": "Describe this picture.",
    "describe": "Describe this picture.",
    "frame": "Describe this picture.",
    "ocr": "Read all the text in the picture.",
    "document": "Convert this document to Markdown.",
    "locate": "Locate every object; answer with their bbox_2d and label as JSON.",
}


@dataclass(frozen=True, slots=True)
class Model:
    """What a loaded model consists of."""

    name: str
    engine: Engine
    tokenizer: Tokenizer
    template: ChatTemplate
    sampling: SamplingParams  # the model's own defaults


class VLM:
    """A resident model. Safe to use from several threads: they take turns, step by step."""

    def __init__(self, model: Model, context: int | None = None) -> None:
        """`context` limits prompt plus answer, in tokens.

        Raises OptionError if the model cannot take that many.
        """
        limit = model.engine.config.text.max_position_embeddings
        if context is not None and not 1 < context <= limit:
            raise OptionError(f"context is {context}; this model takes 2 to {limit} tokens")
        self.context = context or min(limit, DEFAULT_CONTEXT)
        self._model = model
        self._vocab_size = model.engine.config.text.vocab_size
        self._forbidden = model.tokenizer.forbidden_ids(self._vocab_size)
        self._embeddings: MemoryCache[EncodedImage] = MemoryCache(EMBEDDING_CACHE_BYTES)
        self._turn = threading.Lock()  # one computation at a time
        self._idle_caches: list[Any] = []

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def engine(self) -> Engine:
        return self._model.engine

    @property
    def tokenizer(self) -> Tokenizer:
        return self._model.tokenizer

    @property
    def sampling(self) -> SamplingParams:
        """The model's own defaults."""
        return self._model.sampling

    def encode(self, image: ImageSource, question: str = "", **options: Any) -> EncodedImage:
        """Encode an image once, to ask about it many times.

        `options` are those of `ImageOptions`: task, min_pixels, max_pixels, resample; `question`
        helps task "auto" to choose a size. Raises ImageError, OptionError.
        """
        watch = Stopwatch()
        prepared = prepare_image(image, question, _image_options(options), self.engine, watch)
        return self._encode(prepared, watch)

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
        return _last(self.stream(images, question, system=system, **options))

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
        self, messages: Sequence[Message], image_options: ImageOptions, sampling: SamplingParams
    ) -> Iterator[Event]:
        """Answer a whole conversation whose last turn is the user's. What `stream` is made of."""
        watch = Stopwatch()
        question = _last_question(messages)
        prepared: list[PreparedImage] = []

        def prepare(part: Any) -> Any:
            if isinstance(part, str):
                return part
            if isinstance(part, Picked):
                part = part.source
            image = prepare_image(part, question, image_options, self.engine, watch)
            prepared.append(image)
            return image

        turns = [
            Message(message.role, tuple(prepare(part) for part in message.content))
            for message in messages
        ]
        merge_size = self.engine.config.vision.merge_size
        prompt = build_prompt(turns, self.tokenizer, self._model.template, merge_size)
        if len(prompt) >= self.context:
            raise ContextOverflow(len(prompt), self.context - 1)
        sampling = replace(
            sampling, max_tokens=min(sampling.max_tokens, self.context - len(prompt))
        )
        images = {image.key: self._encode(image, watch) for image in prepared}
        warnings = tuple(dict.fromkeys(w for image in prepared for w in image.warnings))
        yield from self._generate(prompt, images, sampling, watch, warnings)

    def _encode(self, prepared: PreparedImage, watch: Stopwatch) -> EncodedImage:
        if isinstance(prepared.content, Patches):
            encoded = self._embeddings.get(prepared.key)
            if encoded is None:
                with self._turn, watch.stage("encode"):
                    encoded = self.engine.encode(prepared.content)
                self._embeddings.put(prepared.key, encoded)
                return encoded
        else:
            encoded = prepared.content
        watch.reused("encode")
        return encoded

    def _generate(
        self,
        prompt: Prompt,
        images: dict[str, EncodedImage],
        sampling: SamplingParams,
        watch: Stopwatch,
        warnings: tuple[str, ...],
    ) -> Iterator[Event]:
        engine = self.engine
        answer = Answer(prompt, sampling, self.tokenizer, self._forbidden, self._vocab_size)
        pieces: list[str] = []
        cache = self._take_cache(len(prompt) + sampling.max_tokens)
        try:
            for start in range(0, len(prompt), PREFILL_CHUNK):
                stop = min(start + PREFILL_CHUNK, len(prompt))
                with self._turn, watch.stage("prefill"):
                    hidden = engine.prefill(cache, 0, prompt, images, start, stop)
            with self._turn, watch.stage("prefill"):
                text = answer.accept(engine.logits(hidden[None])[0])
            watch.first_token()
            while True:
                if text:
                    pieces.append(text)
                    with watch.suspended():
                        yield Event(text)
                if answer.finish_reason is not None:
                    break
                step = [answer.last_id], [answer.num_cached], [answer.position]
                with self._turn, watch.stage("generate"):
                    text = answer.accept(engine.decode(cache, 0, *step)[0])
        finally:
            self._idle_caches.append(cache)
        usage = Usage(
            prompt_tokens=len(prompt),
            completion_tokens=len(answer.generated),
            image_tokens=sum(span.length for span in prompt.images),
        )
        text, reason = "".join(pieces), answer.finish_reason
        yield Event("", Result(text, reason, usage, watch.timings(), self.name, warnings))

    def _take_cache(self, num_tokens: int) -> Any:
        """A KV cache of one slot that holds `num_tokens`; an idle one if it is large enough."""
        try:
            cache = self._idle_caches.pop()
        except IndexError:
            cache = None
        if cache is None or cache.capacity < num_tokens:
            capacity = -(-num_tokens // CAPACITY_STEP) * CAPACITY_STEP
            cache = self.engine.open_cache(1, min(capacity, self.context))
        return cache


class Conversation:
    """Questions and answers so far; earlier pictures are encoded once."""

    def __init__(self, vlm: VLM, system: str | None = None) -> None:
        self._vlm = vlm
        self.messages: list[Message] = [] if system is None else [Message("system", (system,))]

    def ask(
        self,
        question: str,
        images: ImageSource | Sequence[ImageSource] | None = None,
        **options: Any,
    ) -> Result:
        """The next question, about `images` or what was shown before. Options as in `VLM.ask`."""
        return _last(self.stream(question, images, **options))

    def stream(
        self,
        question: str,
        images: ImageSource | Sequence[ImageSource] | None = None,
        **options: Any,
    ) -> Iterator[Event]:
        """As `ask`, piece by piece. The turn is remembered when the answer is complete."""
        image_options, sampling = self._vlm.split_options(options)
        sources = [
            self._vlm.encode(source, question, **_as_dict(image_options))
            for source in as_list(images)
        ]
        turns = [*self.messages, user_message(sources, question, image_options.task)]
        for event in self._vlm.stream_messages(turns, image_options, sampling):
            if event.result is not None:
                self.messages = [*turns, Message("assistant", (event.result.text,))]
            yield event


@dataclass(frozen=True, slots=True, eq=False)
class Picked:
    """An image source in a message: a path is a string, and strings are text."""

    source: ImageSource


def as_list(images: ImageSource | Sequence[ImageSource] | None) -> list[Any]:
    """One image, several or none, as a list."""
    if images is None:
        return []
    return list(images) if isinstance(images, list | tuple) else [images]


def user_message(
    images: ImageSource | Sequence[ImageSource] | None, question: str | None, task: Task
) -> Message:
    """Images first, then the question; the task's own where none is given.

    Raises PromptError if there is neither.
    """
    pictures = [Picked(source) for source in as_list(images)]
    if question is None and not pictures:
        raise PromptError("nothing to answer; give a picture, a question or both")
    return Message("user", (*pictures, question or DEFAULT_QUESTIONS[task]))


def _image_options(options: dict[str, Any]) -> ImageOptions:
    known = [field.name for field in fields(ImageOptions)]
    for name in options:
        if name not in known:
            raise OptionError(f"unknown option {name!r}; images take {', '.join(known)}")
    return ImageOptions(**options)


def _as_dict(options: ImageOptions) -> dict[str, Any]:
    return {field.name: getattr(options, field.name) for field in fields(ImageOptions)}


def _last_question(messages: Sequence[Message]) -> str:
    texts = [part for part in messages[-1].content if isinstance(part, str)] if messages else []
    return "\n".join(texts)


def _last(events: Iterator[Event]) -> Result:
    result = None
    for event in events:
        result = event.result
    assert result is not None, "a stream ends with its result or raises"
    return result
