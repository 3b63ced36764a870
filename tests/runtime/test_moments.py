"""Moments of a video as pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qwink.errors import OptionError
from qwink.inputs.frames import VideoOptions
from qwink.runtime.moments import moments
from tests.inputs.videos import level_of, write_video


def test_a_moment_every_so_many_seconds(tmp_path: Path) -> None:
    path = write_video(tmp_path / "clip.mp4", 50, rate=10)
    found = list(moments(path, 1.5))
    assert [moment.time_s for moment in found] == [0.0, 1.5, 3.0, 4.5]
    levels = [int(moment.picture.pixels[-8, -8, 0]) for moment in found]
    expected = [level_of(number) for number in (0, 15, 30, 45)]
    assert np.abs(np.subtract(levels, expected)).max() <= 6
    assert len({moment.picture.key for moment in found}) == 4


def test_a_part_of_the_video(tmp_path: Path) -> None:
    path = write_video(tmp_path / "clip.mp4", 50, rate=10)
    part = [m.time_s for m in moments(path, 1.0, VideoOptions(start=1.0, end=3.0))]
    assert part == [1.0, 2.0, 3.0]
    assert [m.time_s for m in moments(path, 100.0)] == [0.0]
    with pytest.raises(OptionError, match="the video lasts 5"):
        list(moments(path, 1.0, VideoOptions(start=5.0)))
    with pytest.raises(OptionError, match="above 0"):
        list(moments(path, 0.0))
