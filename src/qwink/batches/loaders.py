"""Kinds of files, and what makes parts of each. A new kind is an entry of KINDS."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath

from qwink.batches.items import Part
from qwink.errors import ImageError
from qwink.inputs.containers import is_video
from qwink.inputs.files import read_path
from qwink.inputs.images import MAX_IMAGE_PIXELS
from qwink.inputs.video import OpenedVideo, decode_frames, open_video
from qwink.types import Picture, Video


@dataclass(frozen=True, slots=True)
class Loading:
    """How files are divided. `every_s`: a video is a part each so many seconds, from `start` to
    `end`; None: it is one part.
    """

    every_s: float | None = None
    start: float | None = None
    end: float | None = None
    max_image_pixels: int = MAX_IMAGE_PIXELS


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file, known by its suffix.

    `parts` takes a path and gives the file's parts one after the other, without decoding them. It
    may raise ImageError.
    """

    name: str
    suffixes: frozenset[str]
    parts: Callable[[str, Loading], Iterator[Part]]


def known_kind(path: str) -> Kind | None:
    """The kind by the file's suffix; None if no kind has it."""
    suffix = PurePath(path).suffix.lower()
    return next((kind for kind in KINDS if suffix in kind.suffixes), None)


def parts_of(path: str, loading: Loading) -> Iterator[Part]:
    """The parts of a file. Files of unknown suffixes are videos or pictures, by their content."""
    kind = known_kind(path) or (VIDEO if is_video(path) else PICTURE)
    yield from kind.parts(path, loading)


def _picture(path: str, loading: Loading) -> Iterator[Part]:
    yield Part(partial(read_path, path))


def _video(path: str, loading: Loading) -> Iterator[Part]:
    if loading.every_s is None:
        yield Part(partial(Video, Path(path)))
        return
    video = open_video(path, loading.max_image_pixels)
    start = loading.start or 0.0
    if start >= video.duration_s:
        raise ImageError(
            f"start is {start:g} s, but the video lasts {video.duration_s:.1f} s; give a smaller "
            "start"
        )
    end = video.duration_s - 0.5 / video.rate
    end = end if loading.end is None else min(end, loading.end)
    for step in range(math.floor((end - start) / loading.every_s) + 1):
        time_s = start + step * loading.every_s
        yield Part(partial(_moment, video, round(time_s * video.rate)), time_s=time_s)


def _moment(video: OpenedVideo, number: int) -> Picture:
    """A frame of a video. Raises ImageError."""
    frame = next(decode_frames(video, [number]), None)
    if frame is None:
        raise ImageError(f"{video.name} ends before this moment; save or download it again")
    digest = hashlib.sha256(b"qwink pixels %d %d\0" % frame.pixels.shape[1::-1])
    digest.update(frame.pixels.data)
    return Picture(frame.pixels, digest.hexdigest(), video.size)


PICTURE = Kind(
    "picture",
    frozenset(
        ".jpg .jpeg .png .webp .gif .bmp .tif .tiff .avif .heic .heif".split()  # noqa: SIM905
    ),
    _picture,
)
VIDEO = Kind(
    "video",
    frozenset(".mp4 .m4v .mov .mkv .webm .avi .mpg .mpeg .flv .ogv .wmv".split()),  # noqa: SIM905
    _video,
)
KINDS = (PICTURE, VIDEO)
