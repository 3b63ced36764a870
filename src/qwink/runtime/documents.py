"""One PDF → its pages as pictures for the vision encoder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

from qwink.engine.base import Engine, image_key
from qwink.inputs.budget import TOKEN_PIXELS, Budget, asked_task, choose_budget, fit
from qwink.inputs.patches import prepare
from qwink.inputs.pdf import (
    OpenedPdf,
    choose_pages,
    describe_pages,
    open_pdf,
    render,
    text_layer,
)
from qwink.runtime.preparation import ImageOptions, PreparedImage
from qwink.runtime.stopwatch import Stopwatch
from qwink.types import Picture

_MOST_CHARACTERS = 20_000  # of a page's text layer


@dataclass(frozen=True, slots=True, eq=False)
class FoundPdf:
    """A PDF whose structure was read; its pages were not rendered yet. `sizes` are in pixels."""

    source: OpenedPdf
    numbers: tuple[int, ...]
    sizes: tuple[tuple[int, int], ...]
    budget: Budget
    options: ImageOptions
    least_tokens: int
    identity: Hashable


def find_pdf(
    source: Any, question: str, options: ImageOptions, engine: Engine, watch: Stopwatch
) -> FoundPdf:
    """Read a PDF's structure; choose its pages and their size. Raises ImageError, OptionError."""
    with watch.stage("fetch"):
        opened = open_pdf(source)
    numbers = choose_pages(opened.num_pages, options.pdf, opened.name)
    limits = engine.config.preprocessor.min_pixels, engine.config.preprocessor.max_pixels
    budget = choose_budget(
        asked_task(options.task, question) or "document",
        question,
        None,
        min_pixels=options.min_pixels,
        max_pixels=options.max_pixels,
        limits=limits,
    )
    sizes = tuple(fit(*opened.full_size(number), budget) for number in numbers)
    tokens = sum(width * height // TOKEN_PIXELS for width, height in sizes)
    key = hashlib.sha256(opened.content).hexdigest()
    identity = (key, numbers, sizes, options.pdf.text_layer)
    return FoundPdf(opened, numbers, sizes, budget, options, tokens, identity)


def prepare_pdf(
    found: FoundPdf, engine: Engine, watch: Stopwatch, check: Callable[[], None] = lambda: None
) -> tuple[str | PreparedImage, ...]:
    """Render and cut the pages, with their text where it was asked for. Raises ImageError."""
    parts: list[str | PreparedImage] = []
    num_characters = 0
    vision = engine.config.vision
    for number, size in zip(found.numbers, found.sizes, strict=True):
        check()
        with watch.stage("decode"):
            picture = _picture(found.source, number, size)
            text = text_layer(found.source, number)
        num_characters += len(text)
        with watch.stage("resize"):
            patches = prepare(
                picture, size, found.options.resample, vision.patch_size, vision.merge_size
            )
        num_tokens = patches.grid.num_patches // vision.merge_size**2
        key = image_key(patches.key, engine.artifact_id)
        parts.append(
            PreparedImage(
                patches,
                key,
                patches.grid,
                num_tokens,
                found.source.full_size(number),
                task=found.budget.task,
            )
        )
        if found.options.pdf.text_layer == "use" and text:
            parts.append(f"\nThe text that this page carries:\n{text[:_MOST_CHARACTERS]}\n")
    layer = ""
    if num_characters and found.options.pdf.text_layer == "ignore":
        layer = f"; {num_characters} characters of a text layer not used (text_layer)"
    pages = f"pages {describe_pages(found.numbers)} of {found.source.num_pages}"
    watch.note(f"PDF: {pages}; {found.budget.reason}{layer}")
    return tuple(parts)


def page_picture(pdf: OpenedPdf, number: int, max_pixels: int = 2560 * TOKEN_PIXELS) -> Picture:
    """Page `number`, from 1, as a picture of its own, of at most `max_pixels`."""
    width, height = pdf.full_size(number)
    shrink = min(1.0, (max_pixels / (width * height)) ** 0.5)
    size = max(1, int(width * shrink)), max(1, int(height * shrink))
    picture = _picture(pdf, number, size)
    return replace(picture, original_size=picture.size)


def _picture(pdf: OpenedPdf, number: int, size: tuple[int, int]) -> Picture:
    """A page rendered for `size` (width, height). Its key covers its pixels."""
    pixels = render(pdf, number, size)
    pixels.flags.writeable = False
    digest = hashlib.sha256(b"qwink pixels %d %d\0" % pixels.shape[1::-1])
    digest.update(pixels.data)
    return Picture(pixels, digest.hexdigest(), pdf.full_size(number))
