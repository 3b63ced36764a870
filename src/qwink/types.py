"""Types that all packages share. This module imports nothing of qwink.

Arrays are NumPy; shapes use: H, W pixels; P patches; V visual tokens (P / 4); D hidden size of
the text model; S tokens of a prompt.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import PIL.Image

Task = Literal["auto", "ocr", "document", "describe", "locate", "frame"]
TASKS: tuple[Task, ...] = ("auto", "ocr", "document", "describe", "locate", "frame")

FinishReason = Literal["stop", "length", "repetition"]
Origin = Literal["computed", "reused", "absent"]
Stage = Literal["fetch", "decode", "resize", "encode", "prefill", "generate"]
STAGES: tuple[Stage, ...] = ("fetch", "decode", "resize", "encode", "prefill", "generate")


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """A decoded image: upright, RGB.

    `size` and `original_size` are (width, height) in pixels, upright. They differ if the JPEG
    decoder scaled the picture down. `key` is the SHA-256 of the file or pixels it came from.
    """

    pixels: NDArray[np.uint8]  # [H, W, 3]
    key: str
    original_size: tuple[int, int]
    warnings: tuple[str, ...] = ()

    @property
    def size(self) -> tuple[int, int]:
        return self.pixels.shape[1], self.pixels.shape[0]


@dataclass(frozen=True, slots=True, order=True)
class Grid:
    """Patches of an image along time, height and width; (1, 28, 28) for 448×448 px."""

    t: int
    h: int
    w: int

    @property
    def num_patches(self) -> int:
        return self.t * self.h * self.w


@dataclass(frozen=True, slots=True, eq=False)
class Patches:
    """An image, or T frames of a video, cut into patches, ready for the vision encoder.

    `pixels` holds one patch a row; its values are ordered channel, frame, row, column. Patches are
    in the order in which the encoder merges them: the four patches of each 2×2 block follow each
    other. T is 1 for an image and the encoder's `temporal_patch_size` for a video.
    `key` covers picture, decoded size, resized grid and filter, which determine `pixels`.
    """

    pixels: NDArray[np.uint8]  # [P, 3 * T * patch * patch]
    grid: Grid
    key: str


@dataclass(frozen=True, slots=True, eq=False)
class EncodedImage:
    """The vision encoder's output for an image. Immutable; accepted wherever an image is.

    float32 from the encoder, float16 from the cache.
    """

    embeds: NDArray[np.floating[Any]]  # [V, D]
    deepstack: NDArray[np.floating[Any]]  # [num taps, V, D]
    grid: Grid
    key: str  # the patches' key and the artifact's id
    original_size: tuple[int, int] | None = None  # (width, height) in pixels, upright, if known

    @property
    def num_tokens(self) -> int:
        return int(self.embeds.shape[0])

    @property
    def is_video(self) -> bool:
        return False  # frames are prepared by their video, never given by users

    @property
    def nbytes(self) -> int:
        return self.embeds.nbytes + self.deepstack.nbytes


# What a user may give as an image or a video. A string is a path, a data URL, or a URL that
# `fetch_policy` allows; a file object is open for reading bytes; floats of an array are in 0..1.
ImageSource: TypeAlias = (
    "str | os.PathLike[str] | bytes | IO[bytes] | NDArray[np.uint8] | NDArray[np.floating[Any]] "
    "| Picture | EncodedImage | PIL.Image.Image | Video"
)


@dataclass(frozen=True, slots=True, eq=False)
class Video:
    """A video: a path, bytes or a file object, or pictures in order, `fps` of them a second (2).

    A path or bytes that begin as a video does need no `Video` around them. A GIF does: otherwise
    its first frame is a picture.
    """

    source: str | os.PathLike[str] | bytes | IO[bytes] | Sequence[ImageSource]
    fps: float | None = None


@dataclass(frozen=True, slots=True)
class ImageSpan:
    """The tokens of an image in a prompt: `start` ≤ index < `start + length`."""

    start: int
    length: int
    grid: Grid
    key: str


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """Token ids, spans of images, and M-RoPE positions (time, height, width) per token."""

    ids: NDArray[np.int64]  # [S]
    images: tuple[ImageSpan, ...]
    positions: NDArray[np.int64]  # [3, S]
    next_position: int  # of the first generated token, on all three axes
    num_system: int = 0  # tokens of the system turn, with which the prompt begins

    def __len__(self) -> int:
        return int(self.ids.shape[0])


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool in an assistant's turn. `arguments` is a JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation. `content` mixes texts and images in reading order.

    A turn of role "tool" is the result of a call of the assistant's turn before.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: tuple[Any, ...]  # str | ImageSource, in order
    tool_calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen. Temperature 0 is greedy.

    `repetition_penalty` follows CTRL (Keskar et al., 2019); presence and frequency penalties
    follow OpenAI's API reference and count generated tokens only.
    """

    max_tokens: int = 512
    temperature: float = 0.0
    top_k: int = 0  # 0: off
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()


ShapeKind = Literal["json_object", "json_schema", "regex", "choices", "grammar"]


@dataclass(frozen=True, slots=True)
class Shape:
    """What form an answer must have. Equal shapes allow the same answers.

    `source` is the JSON text of the schema, the regular expression, a JSON list of the choices, or
    a grammar in llguidance's variant of Lark; empty for any JSON object. `strict`: refuse keywords
    of a schema that cannot be enforced, instead of ignoring them with a warning. `free`: the shape
    leaves answers free to say anything, so that they are not greedy by default. `read` turns the
    text of a whole answer into `Result.parsed`; None leaves it as text.
    """

    kind: ShapeKind
    source: str = ""
    strict: bool = True
    free: bool = False
    read: Callable[[str], Any] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the answers to choose from, and its probability among them."""

    text: str
    probability: float


@dataclass(frozen=True, slots=True)
class Timings:
    """Time by stage, in milliseconds. Stages that did not happen are 0 and 'absent'.

    The first token comes with the stage prefill, the others in `num_steps` steps of the stage
    generate: fewer than tokens where drafts were right.
    """

    queue_ms: float = 0.0
    fetch_ms: float = 0.0
    decode_ms: float = 0.0
    resize_ms: float = 0.0
    encode_ms: float = 0.0
    prefill_ms: float = 0.0
    generate_ms: float = 0.0
    total_ms: float = 0.0
    first_token_ms: float = 0.0
    num_steps: int = 0
    origins: dict[Stage, Origin] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # rule of each budget, what was reused; never the user's words


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts. The keys and values of `cached_tokens` of the prompt were reused.

    `accepted_prediction_tokens` are drafts that became part of the answer, each of which saved a
    step; `rejected_prediction_tokens` are drafts that were tried and left out.
    """

    prompt_tokens: int
    completion_tokens: int
    image_tokens: int = 0
    cached_tokens: int = 0
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Box:
    """Something that an answer locates in a picture by a rectangle (left, top, right, bottom).

    `bbox_2d` is in thousandths of the picture's width and height. `box` is in pixels of the
    original picture, upright as its EXIF orientation says. `image` counts the pictures of the
    conversation from 0.
    """

    label: str
    bbox_2d: tuple[float, float, float, float]
    box: tuple[int, int, int, int]
    image: int = 0


@dataclass(frozen=True, slots=True)
class Point:
    """Something that an answer locates by a point (x, y); units as in `Box`."""

    label: str
    point_2d: tuple[float, float]
    point: tuple[int, int]
    image: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """A whole answer. `task` is None without pictures.

    `boxes` and `points` are what the answer locates, if it does. `parsed` is the answer as data if
    a shape was asked for and the answer has it, else None. `choices` are all choices with their
    probabilities, the likeliest first.
    """

    text: str
    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    model: str
    warnings: tuple[str, ...] = ()
    task: Task | None = None
    boxes: tuple[Box, ...] = ()
    points: tuple[Point, ...] = ()
    parsed: Any = None
    choices: tuple[Choice, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A generated token, its log-probability (natural), and the likeliest tokens' (id, logprob)."""

    id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """One piece of a streamed answer; the last one carries the whole `result`.

    Events before the first text have no text and name the current `stage`: "queue", with the number
    of requests before this one as `place`, then "encode", then "prefill".
    """

    text: str
    result: Result | None = None
    stage: Literal["queue", "encode", "prefill"] | None = None
    place: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()
