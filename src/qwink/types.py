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

    Accepted wherever an image is.
    """

    pixels: NDArray[np.uint8]
    """[H, W, 3]."""
    key: str
    """SHA-256 of the file or the pixels that it came from."""
    original_size: tuple[int, int]
    """Width and height in pixels, upright, before the JPEG decoder scaled the picture down."""
    warnings: tuple[str, ...] = ()
    """What may make an answer about it wrong."""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels, upright."""
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
    """The vision encoder's output for an image. Accepted wherever an image is.

    V is the number of visual tokens, D the hidden size of the text model. Arrays are float32 from
    the encoder and float16 from the cache. Only the model that encoded it accepts it.
    """

    embeds: NDArray[np.floating[Any]]
    """[V, D]: the embedding of each visual token."""
    deepstack: NDArray[np.floating[Any]]
    """[taps, V, D]: what is added to the first layers of the text model."""
    grid: Grid
    """Patches along time, height and width. V is a quarter of their product."""
    key: str
    """The key of the patches and the id of the model's artifact."""
    original_size: tuple[int, int] | None = None
    """(width, height) of the picture in pixels, upright; None if it is not known."""

    @property
    def num_tokens(self) -> int:
        """V."""
        return int(self.embeds.shape[0])

    @property
    def is_video(self) -> bool:
        return False  # frames are prepared by their video, never given by users

    @property
    def nbytes(self) -> int:
        """Size of the arrays in bytes."""
        return self.embeds.nbytes + self.deepstack.nbytes


# What a user may give as an image or a video. A string is a path, a data URL, or a URL that
# `fetch_policy` allows; a file object is open for reading bytes; floats of an array are in 0..1.
ImageSource: TypeAlias = (
    "str | os.PathLike[str] | bytes | IO[bytes] | NDArray[np.uint8] | NDArray[np.floating[Any]] "
    "| Picture | EncodedImage | PIL.Image.Image | Video"
)


@dataclass(frozen=True, slots=True, eq=False)
class Video:
    """A video. Accepted wherever an image is, except in `encode`.

    A file that begins as a video does is one without `Video`. A GIF is a picture, its first frame,
    without it.
    """

    source: str | os.PathLike[str] | bytes | IO[bytes] | Sequence[ImageSource]
    """A path, bytes or a file object of a video, or pictures in order."""
    fps: float | None = None
    """Pictures for each second of the video, if `source` is pictures. None: 2."""


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
    """A call of a tool in an assistant's turn."""

    name: str
    """The tool's name."""
    arguments: str
    """A JSON text."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    """Who says it. A turn of role "tool" is the result of a call of the assistant's turn before."""
    content: tuple[Any, ...]
    """Texts and images in reading order. A string is a text; a path of an image is a
    `pathlib.Path`."""
    tool_calls: tuple[ToolCall, ...] = ()
    """What an assistant's turn calls, behind its text."""


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
    """The choice."""
    probability: float
    """How likely the model says this choice, if it may only say choices."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Time of each stage, in milliseconds. A stage that did not happen is 0 and "absent"."""

    queue_ms: float = 0.0
    """Waiting for other requests."""
    fetch_ms: float = 0.0
    """Reading or fetching the pictures."""
    decode_ms: float = 0.0
    """Decoding the pictures."""
    resize_ms: float = 0.0
    """Resizing the pictures."""
    encode_ms: float = 0.0
    """Runs of the vision encoder."""
    prefill_ms: float = 0.0
    """Making the tokens of the prompt, and the text model's run over them."""
    generate_ms: float = 0.0
    """Runs of the text model for the tokens after the first."""
    total_ms: float = 0.0
    """From the call to the end of the answer."""
    first_token_ms: float = 0.0
    """From the call to the first token."""
    num_steps: int = 0
    """Steps in which the tokens after the first came: fewer than tokens where drafts were right,
    or the answer's shape left no choice."""
    origins: dict[Stage, Origin] = field(default_factory=dict)
    """Whether a stage was computed, reused from a cache, or absent."""
    notes: tuple[str, ...] = ()
    """The rule that sized each picture, and what was reused; never the user's words."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Counts of tokens."""

    prompt_tokens: int
    """Tokens of the prompt, those of images included."""
    completion_tokens: int
    """Tokens of the answer, that which ends it included."""
    image_tokens: int = 0
    """Tokens of the prompt that are images."""
    cached_tokens: int = 0
    """Tokens of the prompt whose keys and values were reused."""
    accepted_prediction_tokens: int = 0
    """Drafted tokens that became part of the answer."""
    rejected_prediction_tokens: int = 0
    """Drafted tokens that were computed and are not part of the answer."""


@dataclass(frozen=True, slots=True)
class Box:
    """Something that an answer locates in a picture by a rectangle: left, top, right, bottom."""

    label: str
    """What it is, in the model's words."""
    bbox_2d: tuple[float, float, float, float]
    """In thousandths of the picture's width and height, as the model writes it."""
    box: tuple[int, int, int, int]
    """In pixels of the original picture, upright as its EXIF orientation says."""
    image: int = 0
    """The picture's number in the conversation, from 0."""


@dataclass(frozen=True, slots=True)
class Point:
    """Something that an answer locates in a picture by a point: x, y."""

    label: str
    """What it is, in the model's words."""
    point_2d: tuple[float, float]
    """In thousandths of the picture's width and height, as the model writes it."""
    point: tuple[int, int]
    """In pixels of the original picture, upright as its EXIF orientation says."""
    image: int = 0
    """The picture's number in the conversation, from 0."""


@dataclass(frozen=True, slots=True)
class Result:
    """A whole answer."""

    text: str
    """The answer."""
    finish_reason: FinishReason
    """Why it ended. "stop": the model ended it, or a stop text did. "length": `max_tokens` or the
    context was reached. "repetition": it repeated itself and was cut off."""
    usage: Usage
    """Counts of tokens."""
    timings: Timings
    """Time of each stage."""
    model: str
    """The model's name."""
    warnings: tuple[str, ...] = ()
    """What may make the answer wrong, such as a picture shown at a small part of its size."""
    task: Task | None = None
    """What was asked for, with "auto" resolved; None without pictures."""
    boxes: tuple[Box, ...] = ()
    """What the answer locates by rectangles."""
    points: tuple[Point, ...] = ()
    """What the answer locates by points."""
    parsed: Any = None
    """The answer as data, if a shape was asked for: what the JSON of a schema stands for, or an
    object of the schema's type; for other shapes the text. None if the answer was cut off."""
    choices: tuple[Choice, ...] = ()
    """The choices that were given, with their probabilities, the likeliest first."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A generated token and its probability."""

    id: int
    """The token's id in the vocabulary."""
    logprob: float
    """Natural logarithm of its probability."""
    top: tuple[tuple[int, float], ...] = ()
    """The likeliest tokens in its place, each as (id, logprob)."""


@dataclass(frozen=True, slots=True)
class Event:
    """One piece of a streamed answer."""

    text: str
    """The next piece of the answer; may be empty."""
    result: Result | None = None
    """The whole answer, in the last event only."""
    stage: Literal["queue", "encode", "prefill"] | None = None
    """What the request waits for, in events before the first text only."""
    place: int = 0
    """Number of requests before this one, while `stage` is "queue"."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """The tokens of this piece, for requests that ask for log-probabilities over HTTP."""
