"""What a picture, video or PDF becomes in a turn. New kinds of sources are added here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qwink.engine.base import Engine
from qwink.inputs.containers import is_video
from qwink.inputs.files import BinaryFile, read_object
from qwink.inputs.pdf import is_pdf
from qwink.runtime.documents import FoundPdf, find_pdf, prepare_pdf
from qwink.runtime.preparation import (
    FoundImage,
    ImageOptions,
    PreparedImage,
    fetched,
    find_image,
    prepare_found,
)
from qwink.runtime.stopwatch import Stopwatch
from qwink.runtime.videos import FoundVideo, find_video, prepare_video
from qwink.types import EncodedImage, Picture, Video

Found = FoundImage | FoundVideo | FoundPdf  # its header was read; nothing was decoded
Parts = tuple[str | PreparedImage, ...]


def find_part(
    source: Any,
    question: str,
    options: ImageOptions,
    engine: Engine,
    watch: Stopwatch,
    context: int,
    check: Callable[[], None] = lambda: None,
) -> Found:
    """Fetch a source and read its header. Raises ImageError, OptionError."""
    if not isinstance(source, Video | Picture | EncodedImage):
        with watch.stage("fetch"):
            source = fetched(source, options.fetch_policy)
            source = read_object(source) if isinstance(source, BinaryFile) else source
    if isinstance(source, Video) or is_video(source):
        # Half of the context is left for the rest of the conversation.
        return find_video(source, question, options, engine, watch, context // 2, check)
    if is_pdf(source):
        return find_pdf(source, question, options, engine, watch)
    return find_image(source, question, options, engine, watch)


def prepare_part(
    found: Found, engine: Engine, watch: Stopwatch, check: Callable[[], None] = lambda: None
) -> Parts:
    """Decode and resize. Raises ImageError if the source is damaged."""
    if isinstance(found, FoundVideo):
        return prepare_video(found, engine, watch, check)
    if isinstance(found, FoundPdf):
        return prepare_pdf(found, engine, watch, check)
    return (prepare_found(found, engine, watch, check),)
