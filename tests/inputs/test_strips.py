"""Pages cut into strips, pieces and lines."""

from __future__ import annotations

import numpy as np
import PIL.Image
import PIL.ImageDraw
import pytest

from qwink.inputs.strips import (
    MOST_STRIPS,
    Cut,
    cut_into_lines,
    cut_into_pieces,
    cut_into_strips,
    shown,
    transcribes,
)
from qwink.lab.pictures.pages import pages
from qwink.lab.pictures.sketch import font


def text_page(lines: int, width: int = 600, pitch: int = 40) -> np.ndarray:
    image = PIL.Image.new("RGB", (width, 40 + lines * pitch), "white")
    draw = PIL.ImageDraw.Draw(image)
    for number in range(lines):
        draw.text((30, 20 + number * pitch), f"{number} ferry to the harbour", "black", font(24))
    return np.asarray(image)


def covered(cut: Cut) -> np.ndarray:
    """How often each row of the page is in a strip."""
    rows = np.zeros(cut.pixels.shape[0], np.int64)
    for strip in cut.strips:
        rows[strip.box[1] : strip.box[3]] += 1
    return rows


def test_lines_become_strips_of_one_row_of_tokens() -> None:
    """A long line becomes several, each of whole words."""
    cut = cut_into_lines(text_page(9), 50_176)
    lines = [strip for strip in cut.strips if strip.joint == "\n"]
    assert len(lines) == 9
    assert cut.reason == f"strips: 9 lines in {len(cut.strips)} parts"
    assert [strip.size[1] for strip in cut.strips] == [32] * len(cut.strips)
    for strip in cut.strips:
        pixels = shown(cut, strip)
        assert pixels.shape == (strip.size[1], strip.size[0], 3)
        assert (pixels < 128).any()  # the print is there
        for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]):
            assert (edge > 200).all()  # with ground around
    one = cut_into_lines(text_page(1), 50_176)
    assert one.reason.startswith("strips: 1 line")
    assert {strip.size[1] for strip in one.strips} == {32}
    assert cut_into_lines(np.full((64, 64, 3), 255, np.uint8), 50_176).strips == ()


def test_parts_of_a_line_hold_all_its_print_once() -> None:
    page = text_page(6, width=1200)
    image = PIL.Image.fromarray(page)
    draw = PIL.ImageDraw.Draw(image)
    for number in range(6):  # as prices stand apart
        draw.text((1000, 20 + 40 * number), "42.50", "black", font(24))
    page = np.asarray(image)
    cut = cut_into_lines(page, 50_176)
    counts = np.zeros(page.shape[:2], np.int64)
    for strip in cut.strips:
        left, top, right, bottom = strip.box
        counts[top:bottom, left:right] += 1
    assert (counts[(page < 128).any(axis=2)] == 1).all()
    last = [strip for strip in cut.strips if strip.box[0] > 900]
    assert [strip.joint for strip in last] == [" "] * 6


@pytest.mark.parametrize("count", [2, 4, 8])
def test_strips_share_the_page_and_cut_no_line(count: int) -> None:
    page = text_page(40)
    cut = cut_into_strips(page, 1.0, count)
    assert len(cut.strips) == count
    heights = [strip.box[3] - strip.box[1] for strip in cut.strips]
    assert max(heights) < 2 * min(heights)
    ink = (page < 128).any(axis=(1, 2))
    assert (covered(cut)[ink] == 1).all()


def test_without_a_number_strips_are_as_many_as_pay() -> None:
    assert len(cut_into_strips(text_page(60), 1.0).strips) == MOST_STRIPS
    small = cut_into_strips(text_page(4), 1.0)
    assert small.strips == ()
    assert small.reason == "strips: not cut, it is small"


def test_what_is_not_safe_is_not_cut() -> None:
    blank = cut_into_strips(np.full((800, 600, 3), 255, np.uint8), 1.0, 4)
    assert blank.strips == ()
    assert "no white gaps" in blank.reason
    photo = np.random.default_rng(0).integers(0, 256, (800, 600, 3), np.uint8)
    assert cut_into_strips(photo, 1.0, 4).strips == ()
    for known in list(pages("table"))[:2]:
        cut = cut_into_strips(np.asarray(known.image), 1.0, 4)
        tops = [line.path[0][1] for line in known.lines[1:]]  # of the table, without the heading
        for strip in cut.strips[1:]:
            assert not tops[0] < strip.box[1] < tops[-1], "a cut goes through the table"


def test_a_tall_picture_is_shown_at_full_size_in_pieces() -> None:
    page = text_page(300, width=500)  # 12,040 px high
    cut = cut_into_pieces(page, 768 * 1024)
    assert all(strip.size[0] * strip.size[1] <= 768 * 1024 for strip in cut.strips)
    assert all(strip.size[0] >= 500 for strip in cut.strips)
    assert not any(strip.overlaps for strip in cut.strips)
    ink = (page < 128).any(axis=(1, 2))
    assert (covered(cut)[ink] == 1).all()
    wide = cut_into_pieces(np.ascontiguousarray(page.transpose(1, 0, 2)), 768 * 1024)
    assert len(wide.strips) >= 8
    assert all(strip.size[1] >= 500 for strip in wide.strips)


def test_pieces_overlap_where_there_is_no_gap() -> None:
    noise = np.random.default_rng(1).integers(0, 256, (6000, 300, 3), np.uint8)
    cut = cut_into_pieces(noise, 256 * 1024)
    assert [strip.overlaps for strip in cut.strips] == [False] + [True] * (len(cut.strips) - 1)
    assert (covered(cut) >= 1).all()


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("What does it say?", True),
        ("Read all the text in the picture.", True),
        ("Please transcribe this page as markdown", True),
        ("Read  the text", True),
        ("请识别图中的文字", True),
        ("What does the text say about refunds?", False),
        ("What is the total?", False),
        ("Read the text and translate it.", False),
        ("Which texts are on page 2?", False),
    ],
)
def test_questions_that_want_the_text_as_it_is(question: str, wanted: bool) -> None:
    assert transcribes("ocr", question, ()) is wanted
    assert transcribes("describe", question, ()) is False
    assert transcribes("document", "Convert this document to Markdown.", ()) is True
