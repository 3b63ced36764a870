"""Images as users give them → patches for the vision encoder: fetch, decode, resize."""

from __future__ import annotations

import base64
import binascii
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from qwink.engine.base import Engine, image_key
from qwink.errors import FetchError, OptionError
from qwink.inputs.budget import LARGEST_UNDECIDED, Budget, choose_budget, fit, needs_picture
from qwink.inputs.files import spelled
from qwink.inputs.images import MAX_IMAGE_PIXELS, OpenedImage, decode, open_image
from qwink.inputs.patches import Resample, prepare
from qwink.model.config import ModelConfig
from qwink.runtime.stopwatch import Stopwatch
from qwink.types import EncodedImage, Grid, Patches, Picture, Task

if TYPE_CHECKING:
    from qwink.inputs.fetch import FetchPolicy


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """How images are sized. Areas in pixels; None leaves them to the task.

    `fetch_policy` says which URLs are fetched; without one, none are.
    """

    task: Task = "auto"
    min_pixels: int | None = None
    max_pixels: int | None = None
    resample: Resample = "bicubic"
    max_image_pixels: int = MAX_IMAGE_PIXELS
    fetch_policy: FetchPolicy | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PreparedImage:
    """Patches, or an encoded image if the user gave one.

    `key` identifies the encoded image; it does not depend on the encoder's result.
    """

    content: Patches | EncodedImage
    key: str
    grid: Grid
    num_tokens: int
    warnings: tuple[str, ...] = ()
    task: Task | None = None  # as the budget resolved it; None for an encoded image


def prepare_image(
    source: Any, question: str, options: ImageOptions, engine: Engine, watch: Stopwatch
) -> PreparedImage:
    """Fetch, decode and resize one image, and note the budget's reason on `watch`.

    Raises ImageError if the picture cannot be used, OptionError for contradictory options.
    """
    config = engine.config
    merge_size = config.vision.merge_size
    if isinstance(source, EncodedImage):
        if not source.key.endswith(image_key("", engine.artifact_id)):
            raise OptionError("the image was encoded by another model; encode it with this one")
        return PreparedImage(source, source.key, source.grid, source.num_tokens)
    name = "the image"
    if isinstance(source, Picture):
        picture, budget = source, _budget(question, options, config, source)
    else:
        with watch.stage("fetch"):
            opened = open_image(_fetch(source, options.fetch_policy), options.max_image_pixels)
        name = opened.name
        with watch.stage("decode"):
            picture, budget = _decode(opened, question, options, config)
    watch.note(budget.reason)
    with watch.stage("resize"):
        size = fit(*picture.original_size, budget)
        patches = prepare(picture, size, options.resample, config.vision.patch_size, merge_size)
    num_tokens = patches.grid.num_patches // merge_size**2
    key = image_key(patches.key, engine.artifact_id)
    most = config.preprocessor.max_pixels
    warnings = (*picture.warnings, *_shown_small(name, picture.original_size, size, budget, most))
    return PreparedImage(patches, key, patches.grid, num_tokens, warnings, budget.task)


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


def _decode(
    opened: OpenedImage, question: str, options: ImageOptions, config: ModelConfig
) -> tuple[Picture, Budget]:
    """The picture at about twice the size it will be resized to, and its budget."""
    budget = _budget(question, options, config, None)
    undecided = needs_picture(options.task, question)
    if undecided:
        # Decoded once, for the larger of the two budgets that its detail may lead to.
        largest = ImageOptions(LARGEST_UNDECIDED, options.min_pixels, options.max_pixels)
        budget = _budget(question, largest, config, None)
    width, height = fit(*opened.size, budget)
    picture = decode(opened, at_least=(2 * width, 2 * height))
    return picture, _budget(question, options, config, picture) if undecided else budget


def _fetch(source: Any, policy: FetchPolicy | None) -> Any:
    """Unpack a data URL; fetch another URL if `policy` allows it; return the rest as it is."""
    text = os.fspath(source) if isinstance(source, str | os.PathLike) else None
    if not isinstance(text, str):
        return source
    scheme = text.split(":", 1)[0].lower() if ":" in text else ""
    if scheme == "data":
        return _unpack_data_url(text)
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


def _unpack_data_url(url: str) -> bytes:
    """The bytes of a data URL (RFC 2397)."""
    header, comma, data = url.partition(",")
    if not comma:
        raise FetchError("the data URL has no comma; expected data:image/...;base64,...")
    if not header.lower().endswith(";base64"):
        return unquote_to_bytes(data)
    try:
        return base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError):
        raise FetchError("the data URL is not valid base64; encode the file again") from None
