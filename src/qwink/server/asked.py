"""What a request asks, whichever endpoint it came by: turns, sizes and sampling, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from qwink.errors import OptionError
from qwink.inputs.data_urls import is_data_url
from qwink.inputs.frames import VideoOptions
from qwink.inputs.pdf import PdfOptions
from qwink.inputs.tools import Tool
from qwink.runtime.preparation import ImageOptions
from qwink.runtime.sampling import AskedSampling
from qwink.server.failures import Failure
from qwink.server.messages import ChatMessage, PdfFile, VideoUrls
from qwink.server.schema import AnswerRequest
from qwink.types import SamplingParams, Shape, Task, ToolCall

# OpenAI's `detail` of a picture, and the task whose picture size it stands for.
_TASKS: dict[str, Task] = {"low": "describe", "high": "document", "original": "document"}
_SAMPLING = [
    "temperature",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
]
_EXAMPLE = '{"role": "user", "content": "..."}'


@dataclass(frozen=True, slots=True)
class AskedPicture:
    """A picture by its URL. `task`, if given, replaces that of the request.

    `place` is the field of the request that holds it.
    """

    url: str
    task: Task | None
    place: str


@dataclass(frozen=True, slots=True)
class AskedVideo:
    """A video by its URL, or by those of pictures, `fps` of them a second."""

    urls: tuple[str, ...]
    of_pictures: bool
    fps: float | None
    options: VideoOptions
    place: str


@dataclass(frozen=True, slots=True)
class AskedPdf:
    """A PDF as a data URL."""

    url: str
    options: PdfOptions
    place: str


AskedPart = str | AskedPicture | AskedVideo | AskedPdf


@dataclass(frozen=True, slots=True)
class AskedTurn:
    """One turn. `place` is the field of the request that holds its content."""

    role: Literal["system", "user", "assistant", "tool"]
    parts: tuple[AskedPart, ...]
    place: str
    calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """A checked request. With `continue_final`, the answer continues the assistant's last turn.

    `prediction` is a text that the client expects the answer to resemble. `shape_place` is the
    field of the request that asks for the shape of the answer. A `flex` request lets others pass.
    """

    model: str
    turns: tuple[AskedTurn, ...]
    stream: bool
    sizes: ImageOptions
    sampling: AskedSampling
    num_logprobs: int | None = None
    continue_final: bool = False
    prediction: str = ""
    warnings: tuple[str, ...] = ()
    count: int = 1  # of answers
    shape_place: str = ""
    tools: tuple[Tool, ...] = ()
    flex: bool = False

    @property
    def shape(self) -> Shape | None:
        """The form that the answer must have; None: any."""
        return self.sampling.shape

    def place_of(self, index: int) -> str:
        """The field of the request that holds picture or video number `index`."""
        parts = (part for turn in self.turns for part in turn.parts)
        return [part.place for part in parts if not isinstance(part, str)][index]


def turns_of(messages: Sequence[ChatMessage], places: Sequence[str]) -> tuple[AskedTurn, ...]:
    """The turns of a conversation; all its system and developer turns become one, the first.

    `places` are the fields that hold the messages' contents. Raises Failure for a conversation
    without a user's turn, an empty turn of the user, or a picture in a turn that is not the user's.
    """
    turns = [_turn(message, place) for message, place in zip(messages, places, strict=True)]
    systems = [turn for turn in turns if turn.role == "system"]
    rest = [turn for turn in turns if turn.role != "system"]
    for turn in rest:
        if turn.role == "user" and not any(map(_says_something, turn.parts)):
            raise _wrong(turn.place, "the user's turn is empty; write a text or add a picture")
    if not any(turn.role == "user" for turn in rest):
        place = places[0].partition("[")[0]
        raise _wrong(place, f"there is no turn of the user to answer; add {_EXAMPLE}")
    texts = ["".join(part for part in turn.parts if isinstance(part, str)) for turn in systems]
    system = "\n\n".join(text for text in texts if text)
    return (AskedTurn("system", (system,), places[0]), *rest) if system else tuple(rest)


def _turn(message: ChatMessage, place: str) -> AskedTurn:
    parts: list[AskedPart] = []
    for index, part in enumerate(message.content):
        here = f"{place}[{index}].{part.place}"
        if part.type == "text":
            parts.append(part.text or "")
            continue
        what = {"image_url": "picture", "video_url": "video"}.get(part.type, "file")
        if message.role != "user" and (message.role != "tool" or part.image_url is None):
            raise _wrong(here, f"a turn of role {message.role} has a {what}; move it to a user's")
        if part.image_url is not None:
            task = _TASKS.get(part.image_url.detail or "auto")
            parts.append(AskedPicture(part.image_url.url, task, here))
        elif part.video_url is not None:
            parts.append(_video(part.video_url, here))
        elif part.file is not None:
            parts.append(_pdf(part.file, here))
    role = "system" if message.role == "developer" else message.role
    calls = [
        ToolCall(call.function.name, call.function.arguments) for call in message.tool_calls or ()
    ]
    return AskedTurn(role, tuple(parts), place, tuple(calls))


def _video(video: VideoUrls, place: str) -> AskedVideo:
    fields = ("fps", "num_frames", "min_frames", "max_frames", "start", "end")
    given = {name: getattr(video, name) for name in fields if getattr(video, name) is not None}
    rate = given.pop("fps", None) if video.pictures else None
    try:
        options = VideoOptions(**given)
    except OptionError as error:
        raise _wrong(place.removesuffix(".url"), str(error)) from None
    urls = tuple(video.pictures) if video.pictures else (video.url or "",)
    return AskedVideo(urls, bool(video.pictures), rate, options, place)


def _pdf(file: PdfFile, place: str) -> AskedPdf:
    data = file.file_data
    url = data if is_data_url(data) else f"data:application/pdf;base64,{data}"
    try:
        options = PdfOptions(file.pages, file.text_layer or "ignore")
    except OptionError as error:
        raise _wrong(place.replace("file_data", "pages"), str(error)) from None
    return AskedPdf(url, options, place)


def _says_something(part: AskedPart) -> bool:
    return not isinstance(part, str) or bool(part.strip())


def _wrong(place: str, message: str) -> Failure:
    return Failure(400, f"{place}: {message}", "invalid_value", place)


def template_limits(messages: Sequence[ChatMessage]) -> list[str]:
    """Warnings about what the model's chat template has no place for."""
    warnings = []
    if any(message.name and message.role != "tool" for message in messages):
        warnings.append("the model does not see the names of turns; write them into the texts")
    roles = [message.role in ("system", "developer") for message in messages]
    if any(late and not all(roles[:index]) for index, late in enumerate(roles)):
        warnings.append(
            "the model sees system turns at the start only; later ones were moved there"
        )
    return warnings


def image_options(request: AnswerRequest) -> ImageOptions:
    """The size options of all pictures of the request; a picture's `detail` overrides its task."""
    nested = request.mm_processor_kwargs
    low, high = request.min_pixels, request.max_pixels
    if nested is not None:
        low = nested.min_pixels if low is None else low
        high = nested.max_pixels if high is None else high
    strips = "auto" if request.strips is None else request.strips
    return ImageOptions(request.task or "auto", low, high, strips=strips)


def sampling_of(
    request: AnswerRequest,
    max_tokens: int | None,
    defaults: SamplingParams,
    shape: Shape | None = None,
) -> AskedSampling:
    """The request's sampling parameters; the task and `defaults` fill those it leaves out.

    `shape`: the form that the answer must have; None: any.
    """
    given: dict[str, Any] = {name: getattr(request, name) for name in _SAMPLING}
    given["max_tokens"] = max_tokens
    given["top_k"] = 0 if request.top_k == -1 else request.top_k  # vLLM's value for no limit
    given["stop"] = tuple(request.stop) if request.stop is not None else None
    chosen = {key: value for key, value in given.items() if value is not None}
    return AskedSampling.of(defaults, chosen, shape)
