"""Results of `qwink verify` as tables on stdout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from qwink.lab.verify.figures import PictureFigures, RecipeFigures, Verdict
from qwink.lab.verify.run import Comparison
from qwink.lab.verify.strips import PageComparison

LONGEST_CELL = 120  # characters of an answer
MOST_ANSWERS = 12  # rows of the table of answers; the rest is in the JSON document
_VERDICTS: dict[Verdict, str] = {
    "safe": "Safe for pictures like these",
    "look": "Look at these",
    "avoid": "Don't use it for pictures like these",
    "unknown": "No verdict",
}


def show_comparison(found: Comparison) -> None:
    """Print figures, noise by place in the model, answers side by side, and the verdicts."""
    console = Console(highlight=False, markup=False)
    console.print(f"{found.model}: {len(found.pictures)} pictures, compared with exact")
    console.print(_figures(found.recipes))
    console.print(_places(found.recipes))
    console.print(_answers(found))
    for recipe in found.recipes:
        verdict = Text(f"{_VERDICTS[recipe.verdict]}: ", style="bold")
        console.print(verdict + plain(recipe.summary), soft_wrap=True)


def show_strips(found: Sequence[PageComparison]) -> None:
    """Print how far answers about strips and about whole pages agree, and their times."""
    console = Console(highlight=False, markup=False)
    table = _table("page", "alike", "whole s", "strips s", "")
    for page in found:
        if page.error is not None:
            table.add_row(page.name, "", "", "", plain(page.error))
            continue
        table.add_row(
            page.name,
            f"{page.alike:.1%}",
            f"{page.whole_ms / 1e3:.2f}",
            f"{page.strips_ms / 1e3:.2f}",
            plain(page.note.removeprefix("strips: ")),
        )
    console.print(table)


def plain(text: str) -> Text:
    """A model's text on one line, without control characters."""
    kept = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return Text(kept)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left")
    return table


def _figures(recipes: Sequence[RecipeFigures]) -> Table:
    table = _table("", *(recipe.recipe for recipe in recipes))

    def row(name: str, *cells: str) -> None:
        table.add_row(name, *cells)

    row("same answer", *(f"{r.num_same_answers} of {r.num_pictures}" for r in recipes))
    row("first choices equal", *(f"{r.top1_agreement:.1%} of {r.num_tokens}" for r in recipes))
    row("clearly another choice", *(str(r.num_clear) for r in recipes))
    row("KL divergence, nats", *(f"{r.kl_nats:.4f}" for r in recipes))
    return table


def _places(recipes: Sequence[RecipeFigures]) -> Table:
    table = _table("signal to noise, dB", *(recipe.recipe for recipe in recipes))
    for place in recipes[0].snr_db_at:
        table.add_row(place, *(f"{recipe.snr_db_at[place]:.1f}" for recipe in recipes))
    table.add_row("logits", *(f"{recipe.snr_db:.1f}" for recipe in recipes))
    return table


def _answers(found: Comparison) -> Table:
    """The pictures whose answers differ most, worst first; then the others."""
    by_recipe = [{picture.name: picture for picture in r.pictures} for r in found.recipes]

    def badness(name: str) -> Any:
        return max(pictures[name].badness for pictures in by_recipe)

    def cell(picture: PictureFigures) -> Text:
        return Text("same") if picture.same_answer else shorten(picture.answer)

    def shorten(answer: str) -> Text:
        text = plain(answer)
        text.truncate(LONGEST_CELL, overflow="ellipsis")
        return text

    table = Table(box=None, pad_edge=False)
    for column in ("worst first", "exact", *(recipe.recipe for recipe in found.recipes)):
        table.add_column(column, overflow="fold")
    ordered = sorted(found.pictures, key=lambda picture: badness(picture.name), reverse=True)
    for reference in ordered[:MOST_ANSWERS]:
        cells = (cell(pictures[reference.name]) for pictures in by_recipe)
        table.add_row(plain(reference.name), shorten(reference.answer), *cells)
    rest = len(ordered) - MOST_ANSWERS
    if rest > 0:
        table.add_row(f"and {rest} more", "")
    return table
