"""The tables of docs/choosing.md."""

from __future__ import annotations

from typing import Any

from qwink.export.recipe import RECIPES
from qwink.inputs.budget import TOKEN_PIXELS, choose_budget
from qwink.types import TASKS
from scripts.performance.layout import Document, Results, milliseconds, table
from scripts.performance.speed import REFERENCE

NOT_MEASURED = "*Not measured here so far; `{}` measures it on your machine.*"
UNKNOWN = "—"


def recipes(results: Results) -> str:
    """Speed beside quality, recipe by recipe."""
    speed = results.read("speed")
    quality, nano = results.read("quality"), results.read("nano")
    rows = []
    for name in RECIPES:
        row = [f"`{name}`"]
        if speed is None or name not in speed["contenders"]:
            row += [UNKNOWN] * 5
        else:
            figures, ratio = speed["contenders"][name], speed["times_faster_than"][REFERENCE][name]
            for measure in ("first_token_ms", "decode_ms_per_token"):
                row += [milliseconds(figures[measure]["median"]), f"{ratio[measure]:.2f}"]
            row.append(f"{figures['peak_rss_bytes']['max'] / 2**30:.1f}")
        row.append(_decibels(quality, name))
        row.append(f"{nano['recipes'][name]['read']['exact']:.1%}" if nano else UNKNOWN)
        rows.append(row)
    head = ["recipe", "first token, ms", "× Transformers", "per token, ms", "× Transformers"]
    return table([*head, "peak GiB", "logits, dB", "nano: whole lines"], rows)


def _decibels(quality: Document | None, recipe: str) -> str:
    if quality is None or recipe not in quality["recipes"]:
        return UNKNOWN
    return f"{quality['recipes'][recipe]['decode']['snr_db']:.1f}"


def tasks(_: Results) -> str:
    """What each task gives a picture, as the code has it."""
    rows = []
    for task in TASKS[1:]:  # auto chooses one of the others
        budget = choose_budget(task, "")
        low, high = budget.min_pixels // TOKEN_PIXELS, budget.max_pixels // TOKEN_PIXELS
        square = round(budget.max_pixels**0.5)
        rows.append([f"`{task}`", str(low), str(high), f"{square}×{square}"])
    return table(["task", "tokens, from", "to", "the most, as a square"], rows)


def letters(results: Results) -> str:
    """nano's reading by the height of the font, after resizing."""
    nano = results.read("nano")
    if nano is None:
        return NOT_MEASURED.format("python -m benchmarks.nano")
    exact: Document = nano["recipes"]["exact"]
    rows = [
        [name.removeprefix("read "), f"{scores['exact']:.0%}", f"{scores['characters']:.0%}"]
        for name, scores in exact.items()
        if name.startswith("read ")
    ]
    return table(["height of the font", "whole lines right", "characters right"], rows)


def sizes(results: Results) -> str:
    """Time by image tokens, with all threads."""
    rows = [
        [
            _name(document),
            size["size"],
            str(size["image_tokens"]),
            *(milliseconds(size["stages_ms"][stage]["median"]) for stage in ("encode", "prefill")),
            milliseconds(size["first_token_ms"]["median"]),
        ]
        for document in _stages(results)
        for size in document["runs"][-1]["sizes"]
    ]
    head = ["model, recipe", "size", "image tokens", "encode, ms", "prefill, ms", "first token, ms"]
    return table(head, rows) if rows else NOT_MEASURED.format("qwink bench stages")


def threads(results: Results) -> str:
    """Time by threads, at the largest size that was measured."""
    rows = []
    for document in _stages(results):
        first = document["runs"][0]["sizes"][-1]["first_token_ms"]["median"]
        for run in document["runs"]:
            size: Any = run["sizes"][-1]
            found = size["first_token_ms"]["median"]
            token = size["token_ms"]["median"] if size["token_ms"] else None
            rows.append(
                [
                    _name(document),
                    size["size"],
                    str(run["threads"]),
                    milliseconds(found),
                    f"{first / found:.2f}",
                    UNKNOWN if token is None else milliseconds(token),
                ]
            )
    head = ["model, recipe", "size", "threads", "first token, ms", "× the fewest", "per token, ms"]
    return table(head, rows) if rows else NOT_MEASURED.format("qwink bench stages")


def _stages(results: Results) -> list[Document]:
    """All measurements of stages; without nano where there are others, since it is no guide."""
    found = list(results.family("stages").values())
    return [document for document in found if document["model"] != "nano"] or found


def _name(document: Document) -> str:
    return f"{document['model']}, `{document['recipe']}`"
