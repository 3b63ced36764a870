"""Small videos, written by PyAV."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import cast

import av
import numpy as np
from av.video.stream import VideoStream
from numpy.typing import NDArray


def grey(level: int, size: tuple[int, int] = (64, 64)) -> NDArray[np.uint8]:
    """A frame [H, W, 3] of one grey; its upper left quarter is white."""
    frame = np.full((size[1], size[0], 3), level, np.uint8)
    frame[: size[1] // 2, : size[0] // 2] = 255
    return frame


def level_of(number: int) -> int:
    """The grey of frame `number`; neighbours differ by more than codecs do."""
    return 20 + number * 7 % 200


def write_video(
    path: Path,
    num_frames: int,
    rate: int = 10,
    size: tuple[int, int] = (64, 64),
    codec: str = "libx264",
    times: list[int] | None = None,
) -> Path:
    """A video whose frame n has the grey `level_of(n)`; `times` are in thousandths of a second."""
    with av.open(str(path), "w") as container:
        stream = cast("VideoStream", container.add_stream(codec, rate=rate))
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        if times is not None:
            stream.codec_context.time_base = Fraction(1, 1000)
        for number in range(num_frames):
            frame = av.VideoFrame.from_ndarray(grey(level_of(number), size), format="rgb24")
            if times is not None:
                frame.time_base, frame.pts = Fraction(1, 1000), times[number]
            for packet in stream.encode(frame):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return path
