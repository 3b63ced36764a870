"""Which frames of a video the model sees.

The rule is that of Qwen3-VL's video processor (Transformers `Qwen3VLVideoProcessor.sample_frames`):
so many frames a second, at least and at most so many, evenly spaced from the first to the last.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from qwink.errors import OptionError

DEFAULT_FPS = 2.0
_MOST_FRAMES = 100_000


@dataclass(frozen=True, slots=True)
class VideoOptions:
    """Which frames of a video are shown: `fps` a second (by default 2), or `num_frames` in all.

    With `fps`, there are at least `min_frames` and at most `max_frames`. `start` and `end` are
    seconds from the beginning of the video; None means its beginning and end.

    Raises OptionError for values out of range and for both `fps` and `num_frames`.
    """

    fps: float | None = None
    num_frames: int | None = None
    min_frames: int = 4
    max_frames: int = 768
    start: float | None = None
    end: float | None = None

    def __post_init__(self) -> None:
        for name in ("fps", "num_frames", "min_frames", "max_frames"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise OptionError(f"{name} is {value}; it must be above 0")
        for name in ("num_frames", "max_frames"):
            if (getattr(self, name) or 0) > _MOST_FRAMES:
                raise OptionError(
                    f"{name} is above {_MOST_FRAMES}; that is more than any context holds"
                )
        for name in ("start", "end"):
            value = getattr(self, name)
            if value is not None and not (value >= 0 and math.isfinite(value)):
                raise OptionError(f"{name} is {value}; it must be 0 seconds or more")
        if self.fps is not None and self.num_frames is not None:
            raise OptionError("fps and num_frames exclude each other; give one of them")
        if self.min_frames > self.max_frames:
            raise OptionError(
                f"min_frames is {self.min_frames}, above max_frames {self.max_frames}"
            )
        if self.start is not None and self.end is not None and self.start >= self.end:
            raise OptionError(f"start is {self.start:g} s; it must be before end {self.end:g} s")


def choose_frames(total: int, rate: float, options: VideoOptions) -> tuple[int, ...]:
    """Numbers of the frames to show, ascending, of a video of `total` frames, `rate` a second.

    A number may come twice where more frames are asked for than there are. Raises OptionError for a
    `start` behind the end of the video.
    """
    first = math.ceil((options.start or 0.0) * rate - 1e-6)
    if first >= total:
        raise OptionError(
            f"start is {options.start:g} s, but the video lasts {total / rate:.1f} s; "
            "give a smaller start"
        )
    last = total - 1
    if options.end is not None:
        last = max(first, min(last, math.floor(options.end * rate + 1e-6)))
    count = last - first + 1
    if options.num_frames is not None:
        wanted = options.num_frames
    else:
        wanted = int(count / rate * (options.fps or DEFAULT_FPS))
        wanted = min(max(wanted, options.min_frames), options.max_frames, count)
    return tuple(int(number) for number in spread(first, last, wanted))


def spread(first: int, last: int, count: int) -> np.typing.NDArray[np.int64]:
    """`count` whole numbers from `first` to `last`, evenly spaced."""
    return np.linspace(first, last, count).round().astype(np.int64)
