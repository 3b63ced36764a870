"""One video → pairs of frames for the vision encoder, each with its time.

The format is the one that Qwen3-VL was trained on: for each pair of frames (T frames, as the
checkpoint says) a text "<1.5 seconds>", the mean of their times, and then their tokens. Pairs are
encoded one by one, as pictures are. An odd number of frames repeats the last.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qwink.engine.base import Engine, image_key
from qwink.errors import ImageError
from qwink.inputs.budget import TOKEN_PIXELS, Budget, asked_task, choose_budget, fit
from qwink.inputs.frames import DEFAULT_FPS, choose_frames, spread
from qwink.inputs.images import OpenedImage, decode, open_image
from qwink.inputs.patches import prepare_frames, resize_pixels
from qwink.inputs.video import Frame, OpenedVideo, decode_frames, open_video
from qwink.model.config import ModelConfig
from qwink.runtime.preparation import ImageOptions, PreparedImage, fetched
from qwink.runtime.stopwatch import Stopwatch
from qwink.types import Patches, Task, Video

_STAMP_TOKENS = 12  # of "<1234.5 seconds>" and the marks around a pair
_DETAILED: tuple[Task, ...] = ("ocr", "document", "locate")
# Pixels of all frames together and tokens of one, as the published checkpoints were trained:
# Qwen3-VL's video_preprocessor_config.json and Transformers' `cap_pixels_per_frame`.
_MOST_PIXELS = 25_165_824
_MOST_FRAME_TOKENS = 768


@dataclass(frozen=True, slots=True, eq=False)
class FoundVideo:
    """A video whose header was read, and whose frames were not decoded yet.

    The frames `numbers`, `rate` a second, will be resized to `size` (width, height).
    """

    source: OpenedVideo | tuple[OpenedImage, ...]
    numbers: tuple[int, ...]
    rate: float
    size: tuple[int, int]
    budget: Budget
    options: ImageOptions
    least_tokens: int
    identity: Hashable
    warnings: tuple[str, ...] = ()


def find_video(
    source: Any,
    question: str,
    options: ImageOptions,
    engine: Engine,
    watch: Stopwatch,
    most_tokens: int,
    check: Callable[[], None] = lambda: None,
) -> FoundVideo:
    """Fetch a video, read its header, and choose its frames and their size.

    `source` is a path, bytes, a file object or a `Video`. Frames are left out, with a warning, if
    all would take more than `most_tokens`. Raises ImageError, OptionError.
    """
    video = source if isinstance(source, Video) else Video(source)
    opened: OpenedVideo | tuple[OpenedImage, ...]
    with watch.stage("fetch"):
        if isinstance(video.source, list | tuple):
            opened = _open_pictures(video.source, options)
        else:
            content: Any = fetched(video.source, options.fetch_policy)
            opened = open_video(content, options.max_image_pixels, check)
    wanted = options.video
    if isinstance(opened, tuple):
        rate, original, known = (
            video.fps or DEFAULT_FPS,
            opened[0].size,
            tuple(one.key for one in opened),
        )
        numbers = tuple(range(len(opened)))
        if wanted.num_frames is not None and wanted.num_frames < len(opened):
            numbers = tuple(int(n) for n in spread(0, len(opened) - 1, wanted.num_frames))
    else:
        rate, original, known = opened.rate, opened.size, opened.identity
        numbers = choose_frames(opened.num_frames, rate, wanted)
    budget, size = _budget(question, options, engine.config, original, len(numbers))
    frames_together = engine.config.vision.temporal_patch_size
    tokens = size[0] * size[1] // TOKEN_PIXELS + _STAMP_TOKENS
    warnings: tuple[str, ...] = ()
    room = max(1, most_tokens // tokens) * frames_together
    if len(numbers) > room and wanted.num_frames is None:
        seconds = (numbers[-1] - numbers[0]) / rate
        warnings = (
            f"{_name(opened)} is shown with {room} frames of {len(numbers)}, one every "
            f"{seconds / max(1, room - 1):.1f} s; ask about a part of it (start, end), lower "
            "max_pixels or raise the context",
        )
        numbers = tuple(numbers[int(n)] for n in spread(0, len(numbers) - 1, room))
    num_pairs = -(-len(numbers) // frames_together)
    identity = (known, numbers, rate, size, options.resample)
    return FoundVideo(
        opened, numbers, rate, size, budget, options, num_pairs * tokens, identity, warnings
    )


def prepare_video(
    video: FoundVideo,
    engine: Engine,
    watch: Stopwatch,
    check: Callable[[], None] = lambda: None,
) -> tuple[str | PreparedImage, ...]:
    """Decode and resize the frames: times and pairs of frames, in turns.

    `check` is called now and then, and may raise. Raises ImageError if the video is damaged.
    """
    frames, warnings = _resized(video, watch, check), video.warnings
    if len(frames) < len(video.numbers):
        warnings += (
            f"{_name(video.source)} ends at {frames[-1].time_s:.1f} s, before its header says; "
            f"{len(frames)} frames are shown",
        )
    watch.note(f"video: {len(frames)} frames; {video.budget.reason}")
    vision, parts = engine.config.vision, list[str | PreparedImage]()
    original = video.source[0] if isinstance(video.source, tuple) else video.source
    together = vision.temporal_patch_size
    for start in range(0, len(frames), together):
        pair = frames[start : start + together]
        pair += [pair[-1]] * (together - len(pair))
        with watch.stage("resize"):
            stacked = np.stack([frame.pixels for frame in pair])
            patches = prepare_frames(stacked, vision.patch_size, vision.merge_size)
        parts.append(f"<{(pair[0].time_s + pair[-1].time_s) / 2:.1f} seconds>")
        told = warnings if start == 0 else ()
        parts.append(_prepared(patches, engine, original.size, told, video.budget.task))
    return tuple(parts)


def _prepared(
    patches: Patches,
    engine: Engine,
    size: tuple[int, int],
    warnings: tuple[str, ...],
    task: Task,
) -> PreparedImage:
    num_tokens = patches.grid.num_patches // engine.config.vision.merge_size**2
    key = image_key(patches.key, engine.artifact_id)
    grid = patches.grid
    return PreparedImage(patches, key, grid, num_tokens, size, warnings, task, is_video=True)


def _resized(video: FoundVideo, watch: Stopwatch, check: Callable[[], None]) -> list[Frame]:
    """The frames at their nominal times, resized."""
    found: list[Frame] = []
    decoded = _decoded(video, check)
    for number in video.numbers:
        check()
        with watch.stage("decode"):
            frame = next(decoded, None)
        if frame is None:
            break
        with watch.stage("resize"):
            pixels = resize_pixels(frame.pixels, video.size, video.options.resample)
        found.append(Frame(number / video.rate, pixels))
    return found


def _decoded(video: FoundVideo, check: Callable[[], None]) -> Iterator[Frame]:
    source = video.source
    if isinstance(source, OpenedVideo):
        yield from decode_frames(source, video.numbers, check)
        return
    twice = 2 * video.size[0], 2 * video.size[1]
    for number in video.numbers:
        yield Frame(number / video.rate, decode(source[number], twice, check).pixels)


def _open_pictures(sources: Sequence[Any], options: ImageOptions) -> tuple[OpenedImage, ...]:
    if not sources:
        raise ImageError("the video has no pictures; give one or more")
    opened = []
    for source in sources:
        content = fetched(source, options.fetch_policy)
        opened.append(open_image(content, options.max_image_pixels))
    return tuple(opened)


def _budget(
    question: str,
    options: ImageOptions,
    config: ModelConfig,
    original: tuple[int, int],
    num_frames: int,
) -> tuple[Budget, tuple[int, int]]:
    """What a frame may take, and its size: by the task, and by what all frames may take."""
    task = asked_task(options.task, question)
    if task is None or (options.task == "auto" and task not in _DETAILED):
        task = "frame"
    limits = config.preprocessor.min_pixels, config.preprocessor.max_pixels
    budget = choose_budget(
        task,
        question,
        None,
        min_pixels=options.min_pixels,
        max_pixels=options.max_pixels,
        limits=limits,
    )
    most = min(budget.max_pixels, _MOST_FRAME_TOKENS * TOKEN_PIXELS, _MOST_PIXELS // num_frames)
    most = max(TOKEN_PIXELS, most)
    if most < (options.max_pixels or 0):
        budget = replace(budget, reason=f"{budget.reason}, at most {most} pixels for a frame")
    budget = replace(budget, min_pixels=min(budget.min_pixels, most), max_pixels=most)
    return budget, fit(*original, budget)


def _name(opened: OpenedVideo | tuple[OpenedImage, ...]) -> str:
    return opened.name if isinstance(opened, OpenedVideo) else "the video"
