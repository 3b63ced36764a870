"""Which frames of a video are shown: Transformers' rule, and options out of range."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwink.errors import OptionError
from qwink.inputs.frames import VideoOptions, choose_frames


@given(st.integers(1, 5000), st.floats(0.5, 120), st.floats(0.1, 30))
def test_the_rule_of_transformers(total: int, rate: float, fps: float) -> None:
    """`Qwen3VLVideoProcessor.sample_frames`, which needs torchvision, written out."""
    wanted = int(total / rate * fps)
    wanted = min(max(wanted, 4), 768, total)
    expected = np.linspace(0, total - 1, wanted).round().astype(int)
    assert choose_frames(total, rate, VideoOptions(fps=fps)) == tuple(expected.tolist())


def test_num_frames_and_parts() -> None:
    assert choose_frames(100, 10, VideoOptions(num_frames=3)) == (0, 50, 99)
    assert choose_frames(100, 10, VideoOptions(num_frames=2, start=1, end=2)) == (10, 20)
    assert choose_frames(100, 10, VideoOptions(start=9, end=99)) == (90, 93, 96, 99)
    assert choose_frames(2, 10, VideoOptions(num_frames=4)) == (0, 0, 1, 1)
    assert choose_frames(100, 10, VideoOptions(start=3.01, end=3.02)) == (31,)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"fps": 0}, "fps is 0"),
        ({"fps": float("nan")}, "fps is nan"),
        ({"fps": float("inf")}, "fps is inf"),
        ({"num_frames": -1}, "num_frames is -1"),
        ({"fps": 1, "num_frames": 4}, "exclude each other"),
        ({"min_frames": 9, "max_frames": 8}, "above max_frames"),
        ({"start": -1}, "start is -1"),
        ({"start": 2, "end": 2}, "before end"),
    ],
)
def test_options_out_of_range(options: dict[str, float], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        VideoOptions(**options)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"the video lasts 1\.0 s"):
        choose_frames(10, 10, VideoOptions(start=5))
