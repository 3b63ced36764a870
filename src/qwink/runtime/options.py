"""The keyword options of `ask`, `stream` and `encode`: their types, checked and sorted."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypedDict

from qwink.errors import OptionError
from qwink.inputs.frames import VideoOptions
from qwink.inputs.patches import Resample
from qwink.inputs.pdf import PdfOptions, TextLayer
from qwink.inputs.shape import shape_of
from qwink.runtime.preparation import ImageOptions, Strips
from qwink.runtime.strips import check_strips
from qwink.types import SamplingParams, Shape, Task

if TYPE_CHECKING:
    from qwink.inputs.fetch import FetchPolicy


class ImageKeywords(TypedDict, total=False):
    """How pictures are sized and which are accepted; see `ImageOptions` and `VideoOptions`."""

    task: Task
    """Kind of question. It sets how many pixels a picture gets in the model, and the defaults of
    answers. "auto" chooses by the words of the question and by the text in the picture."""
    min_pixels: int | None
    """A picture of a smaller area, in pixels, is enlarged to it. None: the task's value."""
    max_pixels: int | None
    """A picture of a larger area, in pixels, is reduced to it. 1024 pixels (32×32) become one
    token. None: the task's value."""
    resample: Resample
    """Filter that resizes pictures."""
    max_image_pixels: int
    """A picture of more pixels is refused with `ImageTooLarge`; a JPEG of up to four times as many
    is decoded at half its width and height."""
    fetch_policy: FetchPolicy | None
    """Which URLs may be fetched. None: no URL."""
    fps: float | None
    """Frames of a video that are shown for each second of it. None: 2."""
    num_frames: int | None
    """Frames of a video that are shown in all, instead of `fps`."""
    min_frames: int
    """Least number of frames with `fps`."""
    max_frames: int
    """Largest number of frames with `fps`."""
    start: float | None
    """Second of the video to start at. None: its start."""
    end: float | None
    """Second of the video to end at. None: its end."""
    pages: str | None
    """Pages of a PDF to show, such as "1-3,7". None: all."""
    strips: Strips
    """Whether a page is cut into strips that are read together: "auto" where the model cannot read
    it as a whole, "off", or their number. For questions that want the text of one picture."""
    text_layer: TextLayer
    """"use": give the model the text that a page of a PDF carries, too."""


class AskKeywords(ImageKeywords, total=False):
    """`ImageKeywords`, how tokens are chosen (see `SamplingParams`), and the answer's shape."""

    max_tokens: int
    """Most tokens of the answer, 1 or more; the context may allow fewer."""
    temperature: float
    """0: always the likeliest token. Above 0: tokens are drawn at random; the higher, the more
    evenly."""
    top_k: int
    """Draw from this many likeliest tokens. 0: from all."""
    top_p: float
    """Draw from the likeliest tokens whose probabilities add up to this, above 0, at most 1."""
    min_p: float
    """Draw from tokens at least this many times as likely as the likeliest, 0 to 1."""
    repetition_penalty: float
    """Positive logits of tokens in the prompt or the answer are divided by it, negative ones
    multiplied, 0.01 to 100. 1: off."""
    presence_penalty: float
    """Subtracted from the logits of tokens in the answer, -2 to 2."""
    frequency_penalty: float
    """Subtracted from the logits of tokens in the answer, once for each occurrence, -2 to 2."""
    seed: int | None
    """Makes drawn tokens repeatable. None: a new seed for each answer."""
    stop: str | Sequence[str]
    """Texts that end the answer; the answer does not contain them."""
    schema: Any
    """JSON Schema as a dictionary or text, or a type such as a pydantic model or a dataclass."""
    choices: Sequence[str] | None
    """Answers to choose from; `Result.choices` has their probabilities."""
    regex: str | None
    """A regular expression that the whole answer must match."""
    grammar: str | None
    """A grammar of the whole answer, in llguidance's variant of Lark."""


_VIDEO_NAMES = tuple(field.name for field in fields(VideoOptions))
_PDF_NAMES = tuple(field.name for field in fields(PdfOptions))
_IMAGE_NAMES = (
    *(field.name for field in fields(ImageOptions) if field.name not in ("video", "pdf")),
    *_VIDEO_NAMES,
    *_PDF_NAMES,
)
_SAMPLING_NAMES = tuple(field.name for field in fields(SamplingParams))
SHAPE_NAMES = ("schema", "choices", "regex", "grammar")
_WHOLE = {"min_pixels", "max_pixels", "max_image_pixels", "max_tokens", "top_k", "seed"}
_WHOLE |= {"num_frames", "min_frames", "max_frames"}
_OTHER = {"task", "resample", "stop", "fetch_policy", "text_layer", "strips", *SHAPE_NAMES}
_MAY_BE_NONE = {"min_pixels", "max_pixels", "fetch_policy", "seed"}
_MAY_BE_NONE |= {"fps", "num_frames", "start", "end"}


def split(
    options: Mapping[str, Any], others: Sequence[str] = ("system", "timeout")
) -> tuple[dict[str, Any], dict[str, Any], Shape | None]:
    """Keyword options as those of images, those of sampling, and the shape of the answer.

    `others` are names that the caller takes itself, for suggestions. Raises OptionError for an
    unknown name, with the nearest known one, and for a value of the wrong type; ShapeError for a
    shape that is not valid.
    """
    for name, value in options.items():
        _check_name(name, (*_IMAGE_NAMES, *_SAMPLING_NAMES, *SHAPE_NAMES, *others))
        _check_type(name, value)
    if "strips" in options:
        check_strips(options["strips"])
    images = _sizes({name: value for name, value in options.items() if name in _IMAGE_NAMES})
    sampling = {name: value for name, value in options.items() if name in _SAMPLING_NAMES}
    stop = sampling.get("stop", ())
    if isinstance(stop, str | list):
        sampling["stop"] = (stop,) if isinstance(stop, str) else tuple(stop)
    shape = {name: value for name, value in options.items() if name in SHAPE_NAMES}
    return images, sampling, shape_of(**shape)


def image_options(options: Mapping[str, Any]) -> ImageOptions:
    """Options of images alone. Raises OptionError as `split` does, and for those of sampling."""
    for name, value in options.items():
        _check_name(name, tuple(known for known in _IMAGE_NAMES if known != "strips"))
        _check_type(name, value)
    return ImageOptions(**_sizes(options))


def _sizes(options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of ImageOptions, with those of videos together, and those of PDFs."""
    sizes = dict(options)
    video = {name: sizes.pop(name) for name in _VIDEO_NAMES if name in sizes}
    pdf = {name: sizes.pop(name) for name in _PDF_NAMES if name in sizes}
    if video:
        sizes["video"] = VideoOptions(**video)
    if pdf:
        sizes["pdf"] = PdfOptions(**pdf)
    return sizes


def check_timeout(timeout: float | None) -> None:
    """Raises OptionError unless it is None or a number of seconds above 0."""
    if timeout is None:
        return
    _check_type("timeout", timeout)
    if not timeout > 0:
        raise OptionError(f"timeout is {timeout}; it must be above 0 seconds, or None")


def _check_name(name: str, known: Sequence[str]) -> None:
    if name in known:
        return
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
    raise OptionError(f"unknown option {name!r}; {hint}")


def _check_type(name: str, value: Any) -> None:
    if name == "pages" and not isinstance(value, str | None):
        raise OptionError(f"pages is of type {type(value).__name__}; write a text such as '1-3,7'")
    if name == "pages" or name in _OTHER or (value is None and name in _MAY_BE_NONE):
        return
    kind, what = (Integral, "a whole number") if name in _WHOLE else (Real, "a number")
    if isinstance(value, bool) or not isinstance(value, kind):
        shown = repr(value) if isinstance(value, int | float) else type(value).__name__
        raise OptionError(f"{name} is {shown}; it must be {what}")
