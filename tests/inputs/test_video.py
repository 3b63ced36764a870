"""Frames of real files: containers, rotation, rates, damage, and files that claim too much."""

from __future__ import annotations

import io
import sys
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from qwink.errors import Cancelled, ImageError, ImageTooLarge
from qwink.inputs.containers import is_video, video_format
from qwink.inputs.video import OpenedVideo, decode_frames, open_video
from tests.inputs.videos import level_of, write_video

LIMIT = 64_000_000
CODECS = {"mp4": "libx264", "mov": "mpeg4", "mkv": "libx264", "webm": "libvpx-vp9"}
CODECS |= {"avi": "mpeg4", "ts": "libx264", "mpg": "mpeg2video", "flv": "flv"}


def levels(video: OpenedVideo, numbers: list[int]) -> list[int]:
    """The grey of each frame, in its lower right corner."""
    return [int(frame.pixels[-8, -8, 0]) for frame in decode_frames(video, numbers)]


@pytest.mark.parametrize("suffix", CODECS)
def test_frames_of_containers(tmp_path: Path, suffix: str) -> None:
    path = write_video(tmp_path / f"clip.{suffix}", 40, rate=25, codec=CODECS[suffix])
    assert is_video(path)
    assert is_video(path.read_bytes())
    numbers = [0, 3, 17, 30, 38]
    for source in (path, str(path), path.read_bytes(), io.BytesIO(path.read_bytes())):
        video = open_video(source, LIMIT)
        assert video.size == (64, 64)
        assert abs(video.num_frames - 40) <= 1
        assert video.rate == pytest.approx(25, rel=0.03)
        found = levels(video, numbers)
        expected = [level_of(number) for number in numbers]
        assert np.abs(np.subtract(found, expected)).max() <= 6, "codecs change a grey by a little"


def test_far_steps_give_the_frames_that_near_steps_give(tmp_path: Path) -> None:
    """Steps above ten seconds are seeks."""
    path = write_video(tmp_path / "clip.mp4", 900, rate=10)
    video = open_video(path, LIMIT)
    everything = levels(video, list(range(0, 900, 10)))
    assert levels(video, [0, 400, 450, 890]) == [everything[n] for n in (0, 40, 45, 89)]
    assert levels(video, [600]) == [everything[60]]


def test_a_frame_is_the_one_on_show_at_its_time(tmp_path: Path) -> None:
    """A variable rate: nine frames in the first second, then one that stays for nine seconds."""
    times = [*range(0, 900, 100), 900, 9900]
    path = write_video(tmp_path / "clip.mkv", 11, times=times)
    video = open_video(path, LIMIT)
    per_second = video.rate
    at = [round(second * per_second) for second in (0, 4, 8)]
    expected = []
    for number in at:
        on_show = max(n for n, ms in enumerate(times) if ms <= number / per_second * 1000 + 1)
        expected.append(level_of(on_show))
    assert np.abs(np.subtract(levels(video, at), expected)).max() <= 6


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_rotated(tmp_path: Path, degrees: int) -> None:
    """The white quarter is at the upper left before the player's rotation."""
    plain = write_video(tmp_path / "plain.mp4", 4, size=(96, 64))
    path = tmp_path / "rotated.mp4"
    with av.open(str(plain)) as source, av.open(str(path), "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.dts is not None:
                packet.stream = stream
                target.mux(packet)
    data = bytearray(path.read_bytes())
    _rotate_track(data, degrees)
    video = open_video(bytes(data), LIMIT)
    assert video.size == ((96, 64) if degrees == 180 else (64, 96))
    frame = next(iter(decode_frames(video, [0]))).pixels
    # The matrix of the file turns clockwise by `degrees`.
    corner = {90: frame[8, -8], 180: frame[-8, -8], 270: frame[-8, 8]}[degrees]
    assert corner.min() > 200


def _rotate_track(data: bytearray, degrees: int) -> None:
    """Write the matrix of a `tkhd` box (ISO/IEC 14496-12) that turns clockwise."""
    one, minus = (1 << 16).to_bytes(4, "big"), (-(1 << 16)).to_bytes(4, "big", signed=True)
    nothing, unit = bytes(4), (1 << 30).to_bytes(4, "big")
    a, b, c, d = {
        90: (nothing, one, minus, nothing),
        180: (minus, nothing, nothing, minus),
        270: (nothing, minus, one, nothing),
    }[degrees]
    start = data.index(b"tkhd") + 4 + 40
    data[start : start + 36] = a + b + nothing + c + d + nothing + nothing + nothing + unit


def test_sound_without_pictures(tmp_path: Path) -> None:
    path = tmp_path / "sound.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=44100)
        samples = np.zeros((1, 4096), np.float32)
        frame = av.AudioFrame.from_ndarray(samples, format="fltp", layout="mono")
        frame.sample_rate, frame.time_base = 44100, Fraction(1, 44100)
        for packet in (*stream.encode(frame), *stream.encode()):
            container.mux(packet)
    with pytest.raises(ImageError, match="has sound but no pictures"):
        open_video(path, LIMIT)


def test_cut_and_damaged_files_give_frames_or_errors(tmp_path: Path) -> None:
    """Whatever the damage: frames, or an ImageError; nothing else, and no hang."""
    rng = np.random.default_rng(0)
    for suffix in ("mp4", "mkv", "avi", "ts", "flv"):
        whole = write_video(tmp_path / f"a.{suffix}", 30, codec=CODECS[suffix]).read_bytes()
        for attempt in range(12):
            data = bytearray(whole)
            if attempt % 2:
                del data[int(rng.integers(1, len(data))) :]
            for _ in range(20):
                data[int(rng.integers(0, len(data)))] = int(rng.integers(0, 256))
            try:
                video = open_video(bytes(data), LIMIT)
                count = sum(1 for _ in decode_frames(video, [0, 5, 10, 29]))
                assert 1 <= count <= 4
            except ImageError:
                pass


def test_what_is_no_video() -> None:
    for data in (
        b"",
        b"hello",
        b"\x89PNG\r\n\x1a\n" + bytes(300),
        b"#EXTM3U\nfile:///etc/passwd\n",
    ):
        assert not is_video(data)
        assert video_format(data) is None
        with pytest.raises(ImageError, match="not a video of a known format"):
            open_video(data, LIMIT)
    with pytest.raises(ImageError, match="no such file"):
        open_video("missing.mp4", LIMIT)


def test_frames_are_limited_before_they_are_decoded(tmp_path: Path) -> None:
    path = write_video(tmp_path / "clip.mp4", 4, size=(320, 240))
    with pytest.raises(ImageTooLarge, match=r"320×240 px, more than the limit of 0\.0"):
        open_video(path, 10_000)


def test_the_header_may_claim_more_than_there_is(tmp_path: Path) -> None:
    video = open_video(write_video(tmp_path / "clip.mp4", 20), LIMIT)
    assert len(list(decode_frames(video, [0, 10, 19, 30_000, 36_000]))) == 3


def test_a_file_without_a_length_is_counted(tmp_path: Path) -> None:
    """A raw stream of pictures in a Matroska file that was written live."""
    path = tmp_path / "live.mkv"
    with av.open(str(path), "w", options={"live": "1"}) as container:
        stream = container.add_stream("mjpeg", rate=5)
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuvj420p"
        for number in range(30):
            pixels = np.full((64, 64, 3), level_of(number), np.uint8)
            for packet in stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")):
                container.mux(packet)
    video = open_video(path.read_bytes(), LIMIT)
    assert abs(video.num_frames - 30) <= 1


def test_decoding_stops_when_asked(tmp_path: Path) -> None:
    video = open_video(write_video(tmp_path / "clip.mp4", 100), LIMIT)
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls > 5:
            raise Cancelled("enough")

    with pytest.raises(Cancelled):
        list(decode_frames(video, [99], check))
    assert calls == 6


def test_without_pyav_the_message_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_video(tmp_path / "clip.mp4", 4)
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ImageError, match=r"videos need PyAV; install it: .*video"):
        open_video(path, LIMIT)
