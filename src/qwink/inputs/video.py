"""Videos: what a file says about itself, and frames at given times. Decoded by PyAV.

Files are opened as file objects, with the demuxer that their first bytes call for. So a file cannot
make FFmpeg open another file or an address.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qwink.errors import ImageError, ImageTooLarge, QwinkError
from qwink.extras import install_command
from qwink.inputs.containers import MAX_HEAD_BYTES, video_format
from qwink.inputs.files import spelled

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

_MAX_PACKETS = 5_000_000  # of a file whose length is counted: 23 hours at 60 frames a second
_SEEK_S = 10.0  # a larger step forward is a seek; key frames are rarely farther apart
_DEFAULT_RATE = 24.0  # frames a second, where a file does not say; as in Transformers


@dataclass(frozen=True, slots=True, eq=False)
class OpenedVideo:
    """A video whose header was read and whose first frame was decoded.

    `size` is (width, height) in pixels, upright and with square pixels. Frame n is shown at
    n / `rate` seconds, if the rate is constant. `identity` is equal for equal sources.
    """

    size: tuple[int, int]
    num_frames: int
    rate: float
    format: str
    name: str
    identity: tuple[Any, ...]
    content: bytes | Path = field(repr=False, default=b"")

    @property
    def duration_s(self) -> float:
        return self.num_frames / self.rate


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """A frame at `time_s` seconds: upright RGB."""

    time_s: float
    pixels: NDArray[np.uint8]  # [H, W, 3]


def open_video(
    source: bytes | str | os.PathLike[str] | IO[bytes],
    max_image_pixels: int,
    check: Callable[[], None] = lambda: None,
) -> OpenedVideo:
    """Read a video's header and first frame.

    Raises ImageTooLarge for frames of more than `max_image_pixels`; ImageError for a file that is
    no video, has no pictures, or cannot be decoded, and where PyAV is not installed.
    """
    content, name, identity = _content(source)
    head = content[:MAX_HEAD_BYTES] if isinstance(content, bytes) else _head(content)
    kind = video_format(head)
    if kind is None:
        raise ImageError(
            f"{name} is not a video of a known format; give MP4, MOV, Matroska, WebM, AVI, MPEG, "
            "FLV, Ogg, ASF or GIF"
        )
    with _opened(content, kind, name) as (container, stream):
        width, height = stream.codec_context.width, stream.codec_context.height
        if width * height > max_image_pixels:
            raise ImageTooLarge(
                f"{name} has frames of {width}×{height} px, more than the limit of "
                f"{max_image_pixels / 1e6:.1f} megapixels; save it smaller or raise "
                "max_image_pixels"
            )
        first = next(_decoded(container, stream, check), None)
        if first is None:
            raise ImageError(f"no frame of {name} can be decoded; save or download it again")
        height, width = _upright(first).shape[:2]
        rate = float(stream.average_rate or stream.guessed_rate or _DEFAULT_RATE)
        total = stream.frames
        if not total and kind != "mpeg":  # whose duration is a guess from its bit rate
            total = _frames_of_duration(container, stream, rate)
        size = _square_pixels(first, width, height)
    if not total:
        total, rate = _counted(content, kind, name, rate, check)
    return OpenedVideo(size, max(1, total), rate, kind, name, identity, content)


def decode_frames(
    video: OpenedVideo, numbers: Sequence[int], check: Callable[[], None] = lambda: None
) -> Iterator[Frame]:
    """The frames shown at `numbers` / `rate` seconds, ascending; fewer if the video ends before.

    Far steps are seeks. Damaged parts are left out: the frame before them is shown. `check` is
    called for each decoded frame, and may raise. Raises ImageError if no frame can be decoded.
    """
    slack = 0.25 / video.rate  # times in files are rounded
    with _opened(video.content, video.format, video.name) as (container, stream):
        frames = _decoded(container, stream, check)
        ahead = next(frames, None)
        if ahead is None:
            raise ImageError(f"no frame of {video.name} can be decoded; save it again")
        origin = float(ahead.time or 0.0)
        time_s, frame, shown = 0.0, ahead, None
        for number in numbers:
            target = number / video.rate
            if target - time_s > _SEEK_S and _seek(container, stream, origin + target):
                frames = _decoded(container, stream, check)
                ahead = next(frames, None)
            while ahead is not None and float(ahead.time or 0.0) - origin <= target + slack:
                time_s, frame, shown = float(ahead.time or 0.0) - origin, ahead, None
                ahead = next(frames, None)
            if ahead is None and target > time_s + 1.5 / video.rate:
                return  # the video is shorter than its header says
            shown = shown or Frame(time_s, _upright(frame))
            yield shown


def _content(source: Any) -> tuple[bytes | Path, str, tuple[Any, ...]]:
    """Bytes or the path of a file, its name in messages, and its identity."""
    if isinstance(source, str | os.PathLike):
        path, name = Path(source), spelled(source)
        try:
            status = path.stat()
        except FileNotFoundError:
            raise ImageError(f"no such file: {name}; check the path") from None
        except (OSError, ValueError) as error:
            raise ImageError(f"cannot read {name}: {error}") from error
        return path, name, (str(path), status.st_size, status.st_mtime_ns)
    data = source if isinstance(source, bytes | bytearray | memoryview) else source.read()
    data = bytes(data)
    return data, "the video", (hash(data), len(data))


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_HEAD_BYTES)
    except OSError as error:
        raise ImageError(f"cannot read {spelled(path)}: {error.strerror}") from error


@contextmanager
def _opened(
    content: bytes | Path, kind: str, name: str
) -> Iterator[tuple[InputContainer, VideoStream]]:
    """The container and its first video stream. Turns FFmpeg's errors into ImageError."""
    try:
        import av
        from av.error import FFmpegError
    except ImportError:
        raise ImageError(f"videos need PyAV; install it: {install_command('video')}") from None
    try:
        file: IO[bytes] = io.BytesIO(content) if isinstance(content, bytes) else content.open("rb")
        with file, av.open(file, mode="r", format=kind) as container:
            if not container.streams.video:
                raise ImageError(f"{name} has sound but no pictures; give a video with pictures")
            stream = container.streams.video[0]
            if stream.codec_context is None:
                raise ImageError(f"the pictures of {name} have no decoder; save it as H.264")
            stream.thread_type = "AUTO"
            yield container, stream
    except QwinkError:
        raise
    except (FFmpegError, OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ImageError(
            f"cannot decode {name} as a video: {why}; it is damaged or of an unsupported kind: "
            "save or download it again"
        ) from error


def _decoded(
    container: InputContainer, stream: VideoStream, check: Callable[[], None]
) -> Iterator[VideoFrame]:
    """Frames from here on, without those that are damaged."""
    from av.error import EOFError as EndOfFile
    from av.error import FFmpegError

    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets, None)
            frames = [] if packet is None else packet.decode()
        except EndOfFile:
            return
        except FFmpegError:
            check()
            continue
        for frame in frames:
            check()
            yield frame
        if packet is None:
            return


def _seek(container: InputContainer, stream: VideoStream, time_s: float) -> bool:
    """Go to the key frame before a time; False where the file does not allow it."""
    from av.error import FFmpegError

    if stream.time_base is None:
        return False
    try:
        container.seek(round(time_s / float(stream.time_base)), stream=stream)
    except FFmpegError:
        return False
    return True


def _upright(frame: VideoFrame) -> NDArray[np.uint8]:
    pixels = np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)
    return np.ascontiguousarray(np.rot90(pixels, round(frame.rotation / 90) % 4))


def _square_pixels(frame: VideoFrame, width: int, height: int) -> tuple[int, int]:
    """The upright size at which the picture is not distorted: pixels may be wider than high."""
    ratio = getattr(frame, "sample_aspect_ratio", None)
    if not ratio or not 0.1 < ratio < 10:
        return width, height
    if round(frame.rotation / 90) % 2:
        return width, max(1, round(height * float(ratio)))
    return max(1, round(width * float(ratio))), height


def _frames_of_duration(container: InputContainer, stream: VideoStream, rate: float) -> int:
    """How many frames the header's duration holds; 0 if it does not say."""
    if stream.duration and stream.time_base:
        return round(float(stream.duration * stream.time_base) * rate)
    return round(container.duration / 1e6 * rate) if container.duration else 0


def _counted(
    content: bytes | Path, kind: str, name: str, rate: float, check: Callable[[], None]
) -> tuple[int, float]:
    """Number and rate of frames, by reading a file that does not say how long it is."""
    count, first, last = 0, None, 0.0
    with _opened(content, kind, name) as (container, stream):
        for packet in container.demux(stream):
            if packet.size == 0:
                continue
            count += 1
            if packet.pts is not None and packet.time_base:
                last = max(last, float(packet.pts * packet.time_base))
                first = last if first is None else first
            if count % 1000 == 0:
                check()
            if count > _MAX_PACKETS:
                raise ImageTooLarge(f"{name} has more than {_MAX_PACKETS} frames; cut it")
    if first is not None and last > first and count > 1:
        rate = (count - 1) / (last - first)
    return count, rate
