"""Moments of a video as pictures, one every so many seconds: the log of a camera."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from qwink.errors import OptionError
from qwink.inputs.frames import VideoOptions
from qwink.inputs.images import MAX_IMAGE_PIXELS
from qwink.inputs.video import decode_frames, open_video
from qwink.types import Picture


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """What a video shows at `time_s` seconds."""

    time_s: float
    picture: Picture


def moments(
    source: str | os.PathLike[str] | bytes | IO[bytes],
    every_s: float,
    options: VideoOptions | None = None,
    max_image_pixels: int = MAX_IMAGE_PIXELS,
) -> Iterator[Moment]:
    """A moment each `every_s` seconds, from `options.start` to `options.end`, one at a time.

    Raises OptionError for a step that is not above 0 and a start behind the end; ImageError.
    """
    if not (every_s > 0 and math.isfinite(every_s)):
        raise OptionError(f"every is {every_s:g} s; it must be above 0")
    options = options or VideoOptions()
    video = open_video(source, max_image_pixels)
    start, end = options.start or 0.0, video.duration_s
    if start >= end:
        raise OptionError(
            f"start is {start:g} s, but the video lasts {end:.1f} s; give a smaller start"
        )
    end = min(end - 0.5 / video.rate, options.end if options.end is not None else end)
    times = [start + step * every_s for step in range(math.floor((end - start) / every_s) + 1)]
    numbers = [round(time * video.rate) for time in times]
    frames = decode_frames(video, numbers)
    for time, frame in zip(times, frames, strict=False):
        digest = hashlib.sha256(b"qwink pixels %d %d\0" % frame.pixels.shape[1::-1])
        digest.update(frame.pixels.data)
        yield Moment(time, Picture(frame.pixels, digest.hexdigest(), video.size))
