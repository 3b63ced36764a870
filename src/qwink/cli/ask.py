"""`qwink ask`: answer a question about images."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qwink.cli.console import (
    CONTROLS,
    TextLayerName,
    as_utf8,
    on_terminal,
    remark,
)
from qwink.cli.moments import ask_moments
from qwink.cli.options import (
    Context,
    Device,
    Dtype,
    End,
    Engine,
    Every,
    Fps,
    MaxFrames,
    MaxImagePixels,
    MaxPixels,
    MaxTokens,
    MinFrames,
    MinP,
    MinPixels,
    Model,
    NumFrames,
    Quantize,
    Question,
    Recipe,
    RepetitionPenalty,
    Seed,
    Speculate,
    Start,
    Stop,
    Store,
    StoreTtl,
    Strips,
    System,
    Task,
    Temperature,
    Threads,
    TopK,
    TopP,
    seconds,
    strips_of,
)
from qwink.cli.pages import ask_pages
from qwink.cli.shapes import Choices, Grammar, Regex, Schema, shape_options
from qwink.cli.sources import check_options, check_sources, read_streams
from qwink.errors import OptionError

CUT_OFF = 4  # exit code: the answer reached its default length
WITHOUT_LIMIT = 1 << 30  # tokens; the context allows fewer

if TYPE_CHECKING:
    from qwink.types import Event, Result


def ask(
    images: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="IMAGE", help="Path or data URL of a picture, video or PDF; - reads stdin."
        ),
    ] = None,
    question: Question = None,
    task: Task = "auto",
    model: Model = None,
    engine: Engine = None,
    recipe: Recipe = None,
    device: Device = None,
    dtype: Dtype = None,
    quantize: Quantize = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead of the text.")
    ] = False,
    draw: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the picture with the boxes and points of the answer to a PNG, JPEG or WebP "
            "file; takes one picture, and sets --task locate unless you choose another.",
        ),
    ] = None,
    timings: Annotated[
        bool, typer.Option("--timings", help="Print the time of each stage on stderr.")
    ] = False,
    system: System = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    top_k: TopK = None,
    min_p: MinP = None,
    repetition_penalty: RepetitionPenalty = None,
    seed: Seed = None,
    stop: Stop = None,
    go_on: Annotated[
        bool,
        typer.Option(
            "--continue", help="Let the answer be as long as the context allows, not --max-tokens."
        ),
    ] = False,
    schema: Schema = None,
    choices: Choices = None,
    regex: Regex = None,
    grammar: Grammar = None,
    min_pixels: MinPixels = None,
    max_pixels: MaxPixels = None,
    max_image_pixels: MaxImagePixels = None,
    strips: Strips = None,
    fps: Fps = None,
    num_frames: NumFrames = None,
    min_frames: MinFrames = None,
    max_frames: MaxFrames = None,
    start: Start = None,
    end: End = None,
    every: Every = None,
    pages: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Pages of a PDF, such as 1-3,7; by default all."),
    ] = None,
    text_layer: Annotated[
        TextLayerName | None,
        typer.Option(
            help="use gives the model the text that a page of a PDF carries, too; it may differ "
            "from what the page shows. [ignore]"
        ),
    ] = None,
    each_page: Annotated[
        bool, typer.Option("--each-page", help="Ask about each page of a PDF apart.")
    ] = False,
    context: Context = None,
    threads: Threads = None,
    speculate: Speculate = None,
    store: Store = None,
    store_ttl: StoreTtl = None,
) -> None:
    """Answer a question about one or more images, or without images.

    The first use of a checkpoint folder exports it, which may take minutes. The exit code is 4 if
    the answer was cut off at its default length.

    \b
    Examples:
      qwink ask receipt.jpg -q "What is the total?"
      qwink ask page.png --task document > page.md
      qwink ask before.jpg after.jpg -q "What changed?" --timings
      qwink ask desk.jpg --draw desk-boxes.png --json
      cat photo.jpg | qwink ask - --json
      qwink ask receipt.jpg -q "What was bought?" --schema receipt.schema.json
      qwink ask photo.jpg -q "Day or night?" --choices day,night --json
      qwink ask clip.mp4 -q "What happens?"
      qwink ask report.pdf --pages 1-3 -q "Which risks are named?"
      qwink ask camera.mp4 --every 5s -q "How many people are there?"
    """
    sources = images or []
    if draw is not None:
        _check_drawing(draw, sources)
        task = "locate" if task == "auto" else task
    if question is not None and not question.strip():
        question = None
    if not sources and question is None:
        raise OptionError("nothing to answer; give an image, a question (-q) or both")
    if go_on and max_tokens is not None:
        raise OptionError("--continue and --max-tokens exclude each other; give one of them")
    sampling: dict[str, Any] = {
        "max_tokens": WITHOUT_LIMIT if go_on else max_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "seed": seed,
        "stop": tuple(as_utf8(text) or "" for text in stop) if stop else None,
    }
    sizes: dict[str, Any] = {
        "task": task,
        "min_pixels": min_pixels,
        "max_pixels": max_pixels,
        "max_image_pixels": max_image_pixels,
        "strips": strips_of(strips),
        "fps": fps,
        "num_frames": num_frames,
        "min_frames": min_frames,
        "max_frames": max_frames,
        "start": start,
        "end": end,
        "pages": pages,
        "text_layer": text_layer,
    }
    given = {key: value for key, value in sampling.items() if value is not None}
    sized = {key: value for key, value in sizes.items() if value is not None}
    step_s = None if every is None else seconds(every, "--every")
    if step_s is not None and len(sources) != 1:
        raise OptionError("--every asks about one video; give one")
    if step_s is not None and draw is not None:
        raise OptionError("--every and --draw exclude each other")
    if each_page and (len(sources) != 1 or step_s is not None or draw is not None):
        raise OptionError("--each-page asks about one PDF, without --every and --draw")
    check_options(given, sized)
    check_sources(sources, sized)
    if len(sources) > 1:
        remark(
            f"asking about {len(sources)} pictures together, in one question; for an answer about "
            "each: qwink batch"
        )
    shape = shape_options(schema, choices, regex, grammar)
    pictures = read_streams(sources, pipes=draw is not None)
    engine_options: dict[str, Any] = {
        "engine": engine,
        "recipe": recipe,
        "device": device,
        "dtype": dtype,
        "quantize": quantize,
        "threads": threads,
    }
    hint = not as_json and on_terminal()

    from qwink.cli.loading import load_model
    from qwink.runtime.waiting import Limits

    # There is one question: memory for one sequence, unless its page may be read in strips.
    alone = strips == "off" or len(sources) != 1
    limits = Limits(max_running=1) if alone else Limits()
    vlm = load_model(
        model,
        engine_options,
        context,
        limits,
        hint=hint,
        speculate=speculate,
        store=store,
        store_ttl=store_ttl,
    )
    if step_s is not None:
        ask_moments(
            vlm, pictures[0], step_s, question, system, given | shape, sized, as_json=as_json
        )
        return
    if each_page:
        ask_pages(vlm, pictures[0], question, system, given | shape, sized, as_json=as_json)
        return
    events = vlm.stream(pictures, question, system=system, **given, **sized, **shape)

    from qwink.cli.report import about, as_document, show_remarks, show_timings

    if as_json:
        result = _last(events)
        document = json.dumps(as_document(result, about(vlm)), indent=2, ensure_ascii=False)
        typer.echo(document.encode())
    else:
        result = _show(events)
        show_remarks(result)
    if draw is not None:
        _draw(pictures[0], result, draw)
    if timings:
        show_timings(result, about(vlm))
    if result.finish_reason == "length" and max_tokens is None:
        raise typer.Exit(CUT_OFF)


def _check_drawing(draw: Path, sources: list[str]) -> None:
    from qwink.cli.drawing import check_output

    check_output(draw, sources)


def _draw(picture: str | bytes, result: Result, draw: Path) -> None:
    from qwink.cli.drawing import save_drawing

    num_numbers = save_drawing(picture, result.boxes, result.points, draw)
    if not result.boxes and not result.points:
        remark(f"the answer has no boxes or points; {draw} is the picture alone")
    if num_numbers:
        remark(f"no font here has the letters of {num_numbers} labels; {draw} has numbers instead")


def _last(events: Iterator[Event]) -> Result:
    *_, last = events
    assert last.result is not None, "a stream ends with its result or raises"
    return last.result


def _show(events: Iterator[Event]) -> Result:
    """Print the answer as it is generated. Ends the line even if an error interrupts it."""
    removed = CONTROLS if sys.stdout is not None and sys.stdout.isatty() else {}
    end = "\n"
    try:
        for event in events:
            if event.text:
                typer.echo(event.text.translate(removed), nl=False)
                end = event.text[-1]
    finally:
        if end != "\n":
            typer.echo()
    assert event.result is not None, "a stream ends with its result or raises"
    return event.result
