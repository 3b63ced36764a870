"""PDFs in a conversation: pages as pictures, cached apart, with and without their text."""

from __future__ import annotations

from pathlib import Path

import pytest

from qwink.errors import OptionError
from qwink.inputs.pdf import open_pdf
from qwink.runtime.documents import page_picture
from qwink.runtime.vlm import VLM
from tests.inputs.pdfs import write_pdf


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "report.pdf"
    path.write_bytes(write_pdf(["One", "Two", "Three"]))
    return path


def test_pages_are_pictures(vlm: VLM, report: Path) -> None:
    everything = vlm.ask(report, "Read it", min_pixels=1024, max_pixels=4096)
    assert everything.usage.image_tokens == 3 * 2  # 200×100 points become 64×32 px
    some = vlm.ask(report, "Read it", pages="1,3", min_pixels=1024, max_pixels=4096)
    assert some.usage.image_tokens == 2 * 2
    assert some.timings.origins["encode"] == "reused", "pages are cached apart"
    assert any(note.startswith("PDF: pages 1, 3 of 3") for note in some.timings.notes)
    assert vlm.ask(report.read_bytes(), "Read it", min_pixels=1024, max_pixels=4096).text


def test_a_text_layer_is_offered_and_used_on_request(vlm: VLM, report: Path) -> None:
    ignored = vlm.ask(report, "Read it", pages="2", min_pixels=1024, max_pixels=4096)
    assert any("text layer not used" in note for note in ignored.timings.notes)
    used = vlm.ask(report, "Read it", pages="2", text_layer="use", min_pixels=1024, max_pixels=4096)
    assert used.usage.prompt_tokens > ignored.usage.prompt_tokens
    assert not any("not used" in note for note in used.timings.notes)


def test_errors(vlm: VLM, report: Path) -> None:
    with pytest.raises(OptionError, match="has 3 pages"):
        vlm.ask(report, "Read it", pages="4")
    with pytest.raises(OptionError, match="pages is of type int"):
        vlm.ask(report, "Read it", pages=4)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="options of PDFs, and there is none"):
        vlm.ask(None, "Hi", pages="1")


def test_a_page_as_a_picture(report: Path) -> None:
    pdf = open_pdf(report)
    picture = page_picture(pdf, 2)
    assert picture.size == picture.original_size == (556, 278)
    assert page_picture(pdf, 2, 4096).pixels.shape[0] <= 64
    assert page_picture(pdf, 2).key == picture.key != page_picture(pdf, 1).key
