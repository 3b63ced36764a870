"""`qwink ask --each-page`: a question about the pages of PDFs, one after the other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

from qwink.cli.console import CONTROLS
from qwink.errors import OptionError

if TYPE_CHECKING:
    from qwink.runtime.vlm import VLM


def ask_pages(
    vlm: VLM,
    source: str | bytes,
    question: str | None,
    system: str | None,
    sampling: dict[str, Any],
    sizes: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    """Ask about each page of a PDF apart: a heading and the answer for each."""
    from qwink.cli.report import about, as_document, show_remarks
    from qwink.inputs.pdf import is_pdf, open_pdf, page_ranges
    from qwink.runtime.preparation import fetched

    content = fetched(source, None)
    if not is_pdf(content):
        raise OptionError("--each-page asks about a PDF, and this is none; leave it out")
    num_pages = open_pdf(content).num_pages
    wanted = sizes.pop("pages", None)
    numbers = [
        number
        for pages in (page_ranges(wanted) if wanted else [range(1, num_pages + 1)])
        for number in range(pages.start, min(pages.stop, num_pages + 1))
    ]
    if not numbers:
        raise OptionError(f"pages are {wanted!r}, but the PDF has {num_pages} pages")
    for number in dict.fromkeys(numbers):
        result = vlm.ask(content, question, system=system, pages=str(number), **sampling, **sizes)
        if as_json:
            document = {"page": number, **as_document(result, about(vlm))}
            typer.echo(json.dumps(document, ensure_ascii=False).encode())
        else:
            typer.echo(f"--- page {number} of {num_pages} ---")
            typer.echo(result.text.translate(CONTROLS))
            show_remarks(result)
