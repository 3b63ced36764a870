"""Output of `qwink ask` besides the text: the JSON document, warnings, and timings."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from qwink.cli.console import remark, spell_options
from qwink.types import STAGES, Result, Timings

if TYPE_CHECKING:
    from qwink.runtime.vlm import VLM


def about(vlm: VLM) -> dict[str, str]:
    """The engine, how it computes, and whether there are drafts."""
    return {**vlm.engine.about, "drafts": vlm.drafting.about}


def as_document(result: Result, engine: dict[str, str]) -> dict[str, Any]:
    """The result as a dictionary for JSON. `engine` is that of `about`."""
    timings = {
        key: round(value, 3) if isinstance(value, float) else value
        for key, value in asdict(result.timings).items()
    }
    shaped: dict[str, Any] = {"parsed": result.parsed} if result.parsed is not None else {}
    if result.choices:
        shaped["choices"] = [asdict(choice) for choice in result.choices]
    return {
        "text": result.text,
        "boxes": [asdict(box) for box in result.boxes],
        "points": [asdict(point) for point in result.points],
        **shaped,
        "finish_reason": result.finish_reason,
        "model": result.model,
        **engine,
        "usage": asdict(result.usage),
        "timings": timings,
        "warnings": list(result.warnings),
    }


def show_remarks(result: Result) -> None:
    """Print warnings to stderr, among them the reason if the answer was cut off."""
    for warning in result.warnings:
        remark(spell_options(f"warning: {warning}"))


def show_timings(result: Result, engine: dict[str, str]) -> None:
    """Print the times of the stages to stderr, what computed them, and the notes about pictures."""
    from rich.console import Console
    from rich.table import Table

    timings, usage = result.timings, result.usage
    table = Table(box=None, pad_edge=False)
    table.add_column("stage")
    table.add_column("ms", justify="right")
    table.add_column("")
    if timings.queue_ms:
        table.add_row("queue", f"{timings.queue_ms:.1f}", "")
    for stage in STAGES:
        origin = timings.origins.get(stage, "absent")
        spent = "" if origin == "absent" else f"{getattr(timings, f'{stage}_ms'):.1f}"
        table.add_row(stage, spent, origin)
    table.add_row("first token", f"{timings.first_token_ms:.1f}", "", style="bold")
    table.add_row("total", f"{timings.total_ms:.1f}", "", style="bold")
    console = Console(stderr=True, highlight=False)
    console.print(table)
    console.print(
        f"{usage.prompt_tokens} prompt tokens ({usage.image_tokens} of images), "
        f"{usage.completion_tokens} generated{_speed(timings, usage.completion_tokens)}",
        soft_wrap=True,
    )
    console.print(_steps(result), soft_wrap=True, end="")
    console.print(", ".join(f"{name} {value}" for name, value in engine.items()), soft_wrap=True)
    for note in timings.notes:
        console.print(note, markup=False, soft_wrap=True)


def _speed(timings: Timings, num_tokens: int) -> str:
    # Prefill generates the first token.
    if num_tokens < 2 or not timings.generate_ms:
        return ""
    return f", {(num_tokens - 1) / timings.generate_ms * 1e3:.1f} tokens/s"


def _steps(result: Result) -> str:
    """In how many steps the tokens came, if that is fewer than tokens; a line or nothing."""
    usage, steps = result.usage, result.timings.num_steps
    after_first = usage.completion_tokens - 1
    if steps >= after_first and not usage.rejected_prediction_tokens:
        return ""
    right, wrong = usage.accepted_prediction_tokens, usage.rejected_prediction_tokens
    return (
        f"the {after_first} tokens after the first came in {steps} steps; "
        f"of the drafts, {right} were right and {wrong} wrong\n"
    )
