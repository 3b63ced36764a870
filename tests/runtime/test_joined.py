"""Pages read in strips: their answers are those of the strips asked about one by one."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import PIL.Image
import PIL.ImageDraw
import pytest

from qwink.errors import DeadlineExceeded, OptionError
from qwink.inputs.strips import cut_into_strips, shown
from qwink.lab.pictures.sketch import font
from qwink.runtime.joined import without_repeated
from qwink.runtime.listening import listen
from qwink.runtime.messages import last_result, user_message
from qwink.runtime.requests import Model
from qwink.runtime.vlm import VLM
from qwink.runtime.waiting import Limits
from qwink.types import EncodedImage, Event, Result
from tests.inputs.pdfs import write_pdf

COUNT = 4
OPTIONS: dict[str, Any] = {"task": "ocr", "max_pixels": 256 * 1024, "min_pixels": 1024}


@pytest.fixture(scope="module")
def page() -> np.ndarray[Any, Any]:
    """A page of 24 lines, [512, 384, 3]: whole tokens, so that it is shown at its size."""
    image = PIL.Image.new("RGB", (384, 512), "white")
    draw = PIL.ImageDraw.Draw(image)
    rng = np.random.default_rng()
    for number in range(24):
        text = f"{number} harbour {rng.integers(1000)}"
        draw.text((20, 10 + 20 * number), text, "black", font(14))
    return np.asarray(image)


@pytest.fixture(params=[1, 3, 8])
def sharing(tiny_model: Model, request: pytest.FixtureRequest) -> Iterator[VLM]:
    """Models with room for so many answers at once."""
    with VLM(tiny_model, limits=Limits(max_running=request.param)) as vlm:
        yield vlm


def ask(vlm: VLM, page: np.ndarray[Any, Any], **options: Any) -> Result:
    return vlm.ask(page, "Read the text.", **{**OPTIONS, "strips": COUNT, **options})


def asked_apart(vlm: VLM, page: np.ndarray[Any, Any], **options: Any) -> list[Result]:
    """The slow way: each strip as a picture of its own, one after the other."""
    cut = cut_into_strips(page, 1.0, COUNT)
    return [
        vlm.ask(shown(cut, strip), "Read the text.", **{**OPTIONS, "strips": "off", **options})
        for strip in cut.strips
    ]


def joined(vlm: VLM, page: np.ndarray[Any, Any], strip_tokens: int) -> Result:
    """As `ask`, each strip's answer as short as if its model had ended it there."""
    options, sampling = vlm.split_options({**OPTIONS, "strips": COUNT, "max_tokens": strip_tokens})
    turns = (user_message(page, "Read the text.", "ocr"),)
    request = vlm.prepare(turns, options, sampling)
    request.max_tokens = 1000
    return last_result(listen(vlm.scheduler, request))


def test_the_answer_is_that_of_the_strips(sharing: VLM, page: np.ndarray[Any, Any]) -> None:
    found, apart = joined(sharing, page, 6), asked_apart(sharing, page, max_tokens=6)
    assert len(apart) == COUNT
    assert found.text == "\n".join(result.text for result in apart)
    assert found.finish_reason == "length"  # of each strip
    assert found.task == "ocr"


def test_usage_and_timings_are_of_all_strips(tiny_model: Model, page: np.ndarray[Any, Any]) -> None:
    limits = Limits(keep_prompts=False)
    with VLM(tiny_model, limits=limits) as one, VLM(tiny_model, limits=limits) as other:
        found, apart = joined(one, page, 12), asked_apart(other, page, max_tokens=12)
    for name in ("prompt_tokens", "completion_tokens", "image_tokens"):
        assert getattr(found.usage, name) == sum(getattr(one.usage, name) for one in apart)
    timings = found.timings
    assert timings.notes[0] == "strips: 4"
    assert timings.origins["encode"] == "computed"
    together = timings.encode_ms + timings.prefill_ms + timings.generate_ms
    assert 0 < together <= timings.total_ms
    assert 0 < timings.first_token_ms <= timings.total_ms
    # The strips share steps: their answers begin once all their prompts are computed.
    assert 11 <= timings.num_steps <= 14


def test_text_is_streamed_in_order(vlm: VLM, page: np.ndarray[Any, Any]) -> None:
    events: list[Event] = list(vlm.stream(page, "Read the text.", strips=COUNT, **OPTIONS))
    result = events[-1].result
    assert result is not None
    assert "".join(event.text for event in events) == result.text
    assert [event.result for event in events[:-1]] == [None] * (len(events) - 1)
    assert ask(vlm, page).text == result.text


def test_max_tokens_are_those_of_the_whole_answer(vlm: VLM, page: np.ndarray[Any, Any]) -> None:
    whole = joined(vlm, page, 8)  # 32 tokens
    for most in (1, 5, 8):
        cut = ask(vlm, page, max_tokens=most)
        assert cut.usage.completion_tokens == most
        assert whole.text.startswith(cut.text.rstrip("\ufffd"))
        assert cut.finish_reason == "length"
        assert any(f"stopped after {most} tokens" in warning for warning in cut.warnings)


def test_a_caller_that_leaves_frees_all_strips(vlm: VLM, page: np.ndarray[Any, Any]) -> None:
    events = vlm.stream(page, "Read the text.", strips=COUNT, **OPTIONS)
    assert isinstance(events, Generator)
    next(events)
    events.close()
    assert ask(vlm, page).text  # runs after whatever was left
    vlm.scheduler.call(lambda: None)
    assert vlm.scheduler.num_running == vlm.scheduler.num_waiting == 0


def test_a_late_page_ends_once(vlm: VLM, page: np.ndarray[Any, Any]) -> None:
    with pytest.raises(DeadlineExceeded):
        ask(vlm, page, timeout=1e-3)
    assert ask(vlm, page).text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strips": 1}, "use auto, off, or 2 to 8"),
        ({"strips": 9}, "use auto, off, or 2 to 8"),
        ({"strips": "some"}, "use auto, off, or 2 to 8"),
        ({"strips": True}, "use auto, off, or 2 to 8"),
        ({"strips": 4, "choices": ["a", "b"]}, "strips and a shape of the answer exclude"),
        ({"strips": 4, "stop": "."}, "strips and stop texts exclude"),
    ],
)
def test_what_cannot_be_joined_is_refused(
    vlm: VLM, page: np.ndarray[Any, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        ask(vlm, page, **options)


def test_strips_are_of_one_picture(vlm: VLM, page: np.ndarray[Any, Any]) -> None:
    for pictures in ([page, page], []):
        with pytest.raises(OptionError, match="one question about one picture"):
            vlm.ask(pictures, "Read the text.", strips=4)
    encoded = vlm.encode(page[:64, :64], **{**OPTIONS, "max_pixels": 4096})
    assert isinstance(encoded, EncodedImage)
    with pytest.raises(OptionError, match="strips are for pictures"):
        vlm.ask(encoded, "Read the text.", strips=4)
    with pytest.raises(OptionError, match="unknown option 'strips'"):
        vlm.encode(page, strips=4)


def test_a_page_of_a_pdf_is_cut(vlm: VLM) -> None:
    pdf = write_pdf(["Total 42.50", "Page two"])
    found = vlm.ask(pdf, "Read the text.", strips=2, pages="2", **OPTIONS)
    assert any(note.startswith("strips: ") for note in found.timings.notes)
    with pytest.raises(OptionError, match="of a PDF, choose one page"):
        vlm.ask(pdf, "Read the text.", strips=2, **OPTIONS)


def test_without_a_cut_the_page_stays_whole(vlm: VLM) -> None:
    blank = np.full((320, 256, 3), 255, np.uint8)
    options = {**OPTIONS, "max_pixels": 80 * 1024}
    found = vlm.ask(blank, "Read the text.", strips=4, **options)
    assert "strips: not cut, there are no white gaps" in found.timings.notes
    assert found.text == vlm.ask(blank, "Read the text.", strips="off", **options).text


@pytest.mark.parametrize(
    ("before", "text", "rest"),
    [
        ("a\nlast line\nother", "last line\nother\nnew", "new"),
        ("a\nlast 1ine\nother", "last line\nother\nnew", "new"),  # read slightly differently
        ("a\nb", "c\nd", "c\nd"),
        ("total\n", "total\nnew", "new"),
        ("", "x", "x"),
    ],
)
def test_lines_of_an_overlap_are_told_once(before: str, text: str, rest: str) -> None:
    assert without_repeated(before, text) == rest
