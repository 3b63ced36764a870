"""Pages of PDFs as pictures, text layers, and documents that are broken or too much."""

from __future__ import annotations

import io
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from qwink.errors import ImageError, OptionError
from qwink.inputs.pdf import (
    PdfOptions,
    choose_pages,
    describe_pages,
    is_pdf,
    open_pdf,
    render,
    text_layer,
)
from tests.inputs.pdfs import write_pdf


def test_pages_and_text(tmp_path: Path) -> None:
    data = write_pdf(["One", "Two", ""])
    path = tmp_path / "a.pdf"
    path.write_bytes(data)
    for source in (data, path, str(path), io.BytesIO(data)):
        pdf = open_pdf(source)
        assert (pdf.num_pages, pdf.sizes[0]) == (3, (200.0, 100.0))
        assert pdf.full_size(1) == (556, 278)
        pixels = render(pdf, 1, (400, 200))
        assert pixels.shape == (200, 400, 3)
        assert pixels[0, 0].tolist() == [255, 255, 255]
        assert pixels.min() < 50, "the text is black"
        assert [text_layer(pdf, page) for page in (1, 2, 3)] == ["One", "Two", ""]
        assert render(pdf, 3, (64, 32)).min() == 255


def test_colours_are_not_swapped() -> None:
    data = write_pdf([""]).replace(b"<< /Length 0 >>\nstream\n\nendstream", _RED)
    pixels = render(open_pdf(data), 1, (200, 100))
    assert pixels[50, 100].tolist() == [255, 0, 0]


_RED = b"<< /Length 27 >>\nstream\n1 0 0 rg 0 0 200 100 re f  \nendstream"


def test_a_turned_page_is_shown_as_readers_show_it() -> None:
    pdf = open_pdf(write_pdf(["One"], extra="/Rotate 90"))
    assert pdf.sizes[0] == (100.0, 200.0)
    assert render(pdf, 1, (100, 200)).shape == (200, 100, 3)


def test_choosing_pages() -> None:
    assert choose_pages(5, PdfOptions(), "it") == (1, 2, 3, 4, 5)
    assert choose_pages(9, PdfOptions("1-3, 7,2"), "it") == (1, 2, 3, 7)
    assert choose_pages(9, PdfOptions("8-"), "it") == (8, 9)
    assert choose_pages(9, PdfOptions("-2"), "it") == (1, 2)
    assert describe_pages([1, 2, 3, 7, 9, 10]) == "1-3, 7, 9-10"
    for text in ("", "0", "3-1", "a", "1-2-3", "1,,2", "-", "1.5"):
        with pytest.raises(OptionError, match="write numbers and ranges"):
            PdfOptions(text)
    with pytest.raises(OptionError, match="but it has 2 pages"):
        choose_pages(2, PdfOptions("3"), "it")
    with pytest.raises(OptionError, match="but it has 2 pages"):
        choose_pages(2, PdfOptions("1-3"), "it")
    with pytest.raises(OptionError, match=r"1000 pages, more than the 100.*each page apart"):
        choose_pages(1000, PdfOptions(), "it")
    with pytest.raises(OptionError, match="must be ignore or use"):
        PdfOptions(text_layer="read")  # type: ignore[arg-type]


def test_a_page_of_any_size_is_rendered_at_the_size_wanted() -> None:
    """A page of 5 m by 5 m, and one of nothing."""
    huge = open_pdf(write_pdf(["Big"], size=(14_400, 14_400)))
    assert render(huge, 1, (320, 320)).shape == (320, 320, 3)
    nothing = open_pdf(write_pdf(["x"], size=(0, 0)))
    assert render(nothing, 1, (64, 64)).size


def test_broken_documents_give_errors() -> None:
    """Each cut and each damage: pages, or an ImageError."""
    whole = write_pdf(["One", "Two"])
    rng = np.random.default_rng(0)
    for attempt in range(150):
        data = bytearray(whole)
        if attempt % 2:
            del data[int(rng.integers(8, len(data))) :]
        for _ in range(attempt % 13):
            data[int(rng.integers(8, len(data)))] = int(rng.integers(0, 256))
        try:
            pdf = open_pdf(bytes(data))
            for page in range(1, min(pdf.num_pages, 3) + 1):
                render(pdf, page, (64, 32))
                text_layer(pdf, page)
        except ImageError:
            pass


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is no PDF"),
        (b"hello", "is no PDF"),
        (b"%PDF-1.7\nnothing", "cannot read"),
        (write_pdf([]), "has no pages|cannot read"),
    ],
)
def test_what_is_no_document(data: bytes, why: str) -> None:
    with pytest.raises(ImageError, match=why):
        open_pdf(data)


def test_a_password_is_named(encrypted: bytes) -> None:
    with pytest.raises(ImageError, match="needs a password; save it without one"):
        open_pdf(encrypted)


@pytest.fixture
def encrypted() -> bytes:
    """Encrypted by the standard handler (PDF 1.4, RC4); its keys fit no empty password."""
    data = write_pdf(["One"])
    keys = "00" * 32
    handler = (
        f"/Encrypt << /Filter /Standard /V 1 /R 2 /O <{keys}> /U <{keys}> /P -4 >> "
        "/ID [<00> <00>] /Root"
    )
    return data.replace(b"/Root", handler.encode())


def test_threads_take_turns() -> None:
    pdf = open_pdf(write_pdf([f"Page {n}" for n in range(8)]))
    with ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(lambda page: text_layer(pdf, page), [*range(1, 9)] * 4))
    assert texts == [f"Page {n}" for n in range(8)] * 4


def test_is_pdf(tmp_path: Path) -> None:
    data = b"\n\n" + write_pdf(["One"])
    (tmp_path / "a").write_bytes(data)
    assert is_pdf(data)
    assert is_pdf(tmp_path / "a")
    assert not is_pdf(b"PDF")
    assert not is_pdf(tmp_path / "missing")
    assert not is_pdf(3)


def test_without_pdfium_the_message_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    with pytest.raises(ImageError, match=r"PDFs need pypdfium2; install it: .*pdf"):
        open_pdf(write_pdf(["One"]))
