"""Images as users give them → patches for the vision encoder: fetch, decode, resize."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote, urlsplit

from qwink.engine.base import Engine, image_key
from qwink.errors import FetchError, OptionError
from qwink.inputs.budget import LARGEST_UNDECIDED, Budget, choose_budget, fit, needs_picture
from qwink.inputs.data_urls import is_data_url, unpack_data_url
from qwink.inputs.files import spelled
from qwink.inputs.frames import VideoOptions
from qwink.inputs.images import MAX_IMAGE_PIXELS, OpenedImage, decode, open_image
from qwink.inputs.patches import Resample, prepare
from qwink.inputs.pdf import PdfOptions
from qwink.model.config import ModelConfig
from qwink.runtime.stopwatch import Stopwatch
from qwink.types import EncodedImage, Grid, Patches, Picture, Task

if TYPE_CHECKING:
    from qwink.inputs.fetch import FetchPolicy


Strips = Literal["auto", "off"] | int


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """How images are sized. Areas in pixels; None leaves them to the task.

    `video` says which frames of a video are shown, `pdf` which pages of a PDF.

    `fetch_policy` says which URLs are fetched; without one, none are. `strips` says into how many
    strips a page is cut; see `runtime.strips`.
    """

    task: Task = "auto"
    min_pixels: int | None = None
    max_pixels: int | None = None
    resample: Resample = "bicubic"
    max_image_pixels: int = MAX_IMAGE_PIXELS
    fetch_policy: FetchPolicy | None = None
    video: VideoOptions = field(default_factory=VideoOptions)
    pdf: PdfOptions = field(default_factory=PdfOptions)
    strips: Strips = "auto"


@dataclass(frozen=True, slots=True, eq=False)
class PreparedImage:
    """Patches, or an encoded image if the user gave one.

    `key` identifies the encoded image; it does not depend on the encoder's result. `size` is
    (width, height) in pixels, upright: the original's, or if that is not known, the resized one's.
    """

    content: Patches | EncodedImage
    key: str
    grid: Grid
    num_tokens: int
    size: tuple[int, int]
    warnings: tuple[str, ...] = ()
    task: Task | None = None  # as the budget resolved it; None for an encoded image
    is_video: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class FoundImage:
    """An image whose header was read, and that was not decoded yet.

    It will take `least_tokens` or more. Images of equal `identity` become the same patches.
    """

    source: OpenedImage | Picture | EncodedImage
    question: str
    options: ImageOptions
    least_tokens: int
    identity: Hashable


def find_image(
    source: Any, question: str, options: ImageOptions, engine: Engine, watch: Stopwatch
) -> FoundImage:
    """Fetch an image and read its header.

    Raises ImageError if the picture cannot be used, OptionError for contradictory options.
    """
    config = engine.config
    known: Hashable
    if isinstance(source, EncodedImage):
        if not source.key.endswith(image_key("", engine.artifact_id)):
            raise OptionError("the image was encoded by another model; encode it with this one")
        return FoundImage(source, question, options, source.num_tokens, source.key)
    if isinstance(source, Picture):
        budget = _budget(question, options, config, source)
        size, known = source.original_size, (source.key, source.size)
        least = _num_tokens(size, budget, config)
    else:
        with watch.stage("fetch"):
            source = open_image(fetched(source, options.fetch_policy), options.max_image_pixels)
        budget, undecided = _first_budget(question, options, config)
        size, known = source.size, (source.key, undecided)
        least = _num_tokens(size, budget, config)
        if undecided:  # the picture may show that less is enough
            smaller = replace(options, task="describe")
            fewer = _num_tokens(size, _budget(question, smaller, config, None), config)
            least = min(least, fewer)
    areas = options.min_pixels, options.max_pixels
    return FoundImage(source, question, options, least, (known, budget, areas, options.resample))


def prepare_found(
    image: FoundImage, engine: Engine, watch: Stopwatch, check: Callable[[], None] = lambda: None
) -> PreparedImage:
    """Decode and resize an image, and note the budget's reason on `watch`.

    `check` is called now and then, and may raise. Raises ImageError if the picture is damaged.
    """
    config, source, options = engine.config, image.source, image.options
    if isinstance(source, EncodedImage):
        size = source.original_size or _size_of(source.grid, config.vision.patch_size)
        return PreparedImage(source, source.key, source.grid, source.num_tokens, size)
    name = "the image"
    if isinstance(source, Picture):
        picture, budget = source, _budget(image.question, options, config, source)
    else:
        name = source.name
        with watch.stage("decode"):
            picture, budget = _decode(source, image.question, options, config, check)
    watch.note(budget.reason)
    check()
    with watch.stage("resize"):
        size, merge_size = fit(*picture.original_size, budget), config.vision.merge_size
        patches = prepare(picture, size, options.resample, config.vision.patch_size, merge_size)
    num_tokens = patches.grid.num_patches // merge_size**2
    key = image_key(patches.key, engine.artifact_id)
    most = config.preprocessor.max_pixels
    warnings = (*picture.warnings, *_shown_small(name, picture.original_size, size, budget, most))
    original = picture.original_size
    return PreparedImage(patches, key, patches.grid, num_tokens, original, warnings, budget.task)


def prepare_image(
    source: Any, question: str, options: ImageOptions, engine: Engine, watch: Stopwatch
) -> PreparedImage:
    """Fetch, decode and resize one image, and note the budget's reason on `watch`.

    Raises ImageError if the picture cannot be used, OptionError for contradictory options.
    """
    return prepare_found(find_image(source, question, options, engine, watch), engine, watch)


def _size_of(grid: Grid, patch_size: int) -> tuple[int, int]:
    return grid.w * patch_size, grid.h * patch_size


def _num_tokens(size: tuple[int, int], budget: Budget, config: ModelConfig) -> int:
    width, height = fit(*size, budget)
    return width * height // (config.vision.patch_size * config.vision.merge_size) ** 2


def _shown_small(
    name: str, original: tuple[int, int], shown: tuple[int, int], budget: Budget, most: int
) -> tuple[str, ...]:
    """A warning if a side is shown at less than a third of its length. Sizes: width, height."""
    scale = min(shown[0] / original[0], shown[1] / original[1])
    if scale >= 1 / 3:
        return ()
    way_out = "crop it or raise max_pixels" if budget.max_pixels < most else "crop it"
    width, height = original
    return (f"{name} is shown at {scale * 100:.0f} % of its size ({width}×{height}); {way_out}",)


def _budget(
    question: str, options: ImageOptions, config: ModelConfig, picture: Picture | None
) -> Budget:
    limits = config.preprocessor.min_pixels, config.preprocessor.max_pixels
    return choose_budget(
        options.task,
        question,
        picture,
        min_pixels=options.min_pixels,
        max_pixels=options.max_pixels,
        limits=limits,
    )


def _first_budget(question: str, options: ImageOptions, config: ModelConfig) -> tuple[Budget, bool]:
    """The budget before the picture is decoded, and whether the picture may change it.

    In that case it is the larger of the two that its detail may lead to.
    """
    undecided = needs_picture(options.task, question)
    known = replace(options, task=LARGEST_UNDECIDED) if undecided else options
    return _budget(question, known, config, None), undecided


def _decode(
    opened: OpenedImage,
    question: str,
    options: ImageOptions,
    config: ModelConfig,
    check: Callable[[], None],
) -> tuple[Picture, Budget]:
    """The picture at about twice the size it will be resized to, and its budget."""
    budget, undecided = _first_budget(question, options, config)
    width, height = fit(*opened.size, budget)
    picture = decode(opened, at_least=(2 * width, 2 * height), check=check)
    return picture, _budget(question, options, config, picture) if undecided else budget


def fetched(source: Any, policy: FetchPolicy | None) -> Any:
    """Unpack a data URL; fetch another URL if `policy` allows it; return the rest as it is."""
    text = os.fspath(source) if isinstance(source, str | os.PathLike) else None
    if not isinstance(text, str):
        return source
    if is_data_url(text):
        return unpack_data_url(text)
    scheme = text.split(":", 1)[0].lower() if ":" in text else ""
    if scheme == "file":
        path = spelled(unquote(urlsplit(text).path))
        raise FetchError(f"file URLs are not read; pass the path: {path}")
    if "://" in text[:64] and scheme not in ("http", "https") and scheme.isalnum():
        raise FetchError(f"{scheme} URLs are not read; download the picture and pass its path")
    if scheme in ("http", "https"):
        if policy is not None:
            from qwink.inputs.fetch import (
                fetch,
            )  # imports an HTTP client, which most uses do not need

            return fetch(text, policy)
        raise FetchError("URLs are not fetched here; download the picture and pass its path")
    return source
