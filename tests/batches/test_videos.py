"""Tests of videos in a batch: whole, or moment by moment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qwink
from qwink.batches.loaders import Loading
from qwink.batches.sources import Sources
from qwink.errors import ImageError, OptionError
from qwink.runtime.vlm import VLM
from qwink.types import Picture, Video
from tests.batches.conftest import draw
from tests.inputs.videos import level_of, write_video


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    """Three seconds, ten frames each; frame n has the grey `level_of(n)`."""
    (tmp_path / "clips").mkdir()
    return write_video(tmp_path / "clips" / "clip.mp4", 30)


def test_a_video_is_one_item(clip: Path) -> None:
    (item,) = Sources((clip.parent,))
    source = item.part.read()
    assert isinstance(source, Video)
    assert source.source == clip
    assert item.id == str(clip)


def test_moments_are_items(clip: Path) -> None:
    items = list(Sources((clip,), loading=Loading(every_s=1.0)))
    assert [item.id for item in items] == [f"{clip}#t={second}" for second in (0, 1, 2)]
    assert [item.part.time_s for item in items] == [0, 1, 2]
    for second in (2, 0, 1):  # in any order
        picture = items[second].part.read()
        assert isinstance(picture, Picture)
        assert abs(float(np.median(picture.pixels)) - level_of(10 * second)) < 6
    part = Loading(every_s=0.5, start=1.0, end=2.0)
    assert [item.part.time_s for item in Sources((clip,), loading=part)] == [1.0, 1.5, 2.0]


def test_videos_of_unknown_suffixes_are_told_by_their_content(clip: Path) -> None:
    other = clip.rename(clip.with_suffix(".recording"))
    assert len(list(Sources((other,), loading=Loading(every_s=1.0)))) == 3


def test_what_is_wrong_with_a_video_is_a_row(clip: Path) -> None:
    (item,) = Sources((clip,), loading=Loading(every_s=1.0, start=9.0))
    with pytest.raises(ImageError, match="lasts 3"):
        item.part.read()
    clip.write_bytes(b"nothing")
    (item,) = Sources((clip,), loading=Loading(every_s=1.0))
    with pytest.raises(ImageError, match="video of a known format"):
        item.part.read()


def test_the_log_of_a_camera(nano: VLM, clip: Path, tmp_path: Path) -> None:
    out = tmp_path / "log.jsonl"
    options: dict[str, Any] = {"model": nano, "out": out, "every_s": 1.0, "max_tokens": 4}
    list(qwink.batch(clip, "What is it?", limit=1, **options))
    list(qwink.batch(clip, "What is it?", **options))
    rows = [json.loads(line) for line in out.read_bytes().splitlines()]
    assert sorted(row["time_s"] for row in rows) == [0, 1, 2]
    assert all(row["finish_reason"] for row in rows)
    alike = list(
        qwink.batch(clip, "What?", model=nano, every_s=1.0, near_duplicates=32, max_tokens=4)
    )
    assert len([row for row in alike if row.same_as]) == 2  # every moment shows one square


def test_moments_exclude_frames(nano: VLM, clip: Path) -> None:
    with pytest.raises(OptionError, match="fps"):
        qwink.batch(clip, model=nano, every_s=1.0, fps=2.0)
    with pytest.raises(OptionError, match="every"):
        qwink.batch(clip, model=nano, every_s=0.0)


def test_shapes_of_answers(nano: VLM, tmp_path: Path) -> None:
    picture = draw(tmp_path / "a.png", "red")
    (row,) = qwink.batch(
        picture, "What colour?", model=nano, out=tmp_path / "out.jsonl", choices=["red", "blue"]
    )
    assert row.answer in ("red", "blue")
    (line,) = (tmp_path / "out.jsonl").read_bytes().splitlines()
    assert row.choices is not None
    assert abs(sum(row.choices.values()) - 1) < 1e-3
    assert json.loads(line)["choices"] == row.choices
    (row,) = qwink.batch(picture, "What colour?", model=nano, schema={"enum": ["red", "blue"]})
    assert row.parsed in ("red", "blue")
    assert json.loads(row.line())["parsed"] == row.parsed
    with pytest.raises(OptionError, match="shape"):
        qwink.batch(picture, "What colour?", model=nano, out=tmp_path / "out.jsonl")
