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
    RecipeName,
    SpeculateName,
    as_utf8,
    on_terminal,
    remark,
)
from qwink.cli.moments import ask_moments
from qwink.cli.options import (
    Device,
    Dtype,
    Engine,
    Quantize,
    Question,
    Speculate,
    Task,
    Threads,
    seconds,
)
from qwink.cli.shapes import Choices, Grammar, Regex, Schema, shape_options
from qwink.cli.sources import check_options, check_sources, read_streams
from qwink.errors import OptionError

if TYPE_CHECKING:
    from qwink.runtime.vlm import VLM
    from qwink.types import Event, Result


def ask(
    images: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="IMAGE", help="Path or data URL of a picture or video; - reads stdin."
        ),
    ] = None,
    question: Question = None,
    task: Task = "auto",
    model: Annotated[
        str | None,
        typer.Option(
            metavar="REF",
            help="nano, a folder with a checkpoint or an artifact, or a hub id whose checkpoint "
            "is on this machine; by default $QWINK_MODEL, else nano.",
        ),
    ] = None,
    engine: Engine = None,
    recipe: Annotated[
        RecipeName | None,
        typer.Option(
            help="Precision and quantization, see qwink models; by default $QWINK_RECIPE, "
            "else balanced."
        ),
    ] = None,
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
    system: Annotated[
        str | None,
        typer.Option(metavar="TEXT", callback=as_utf8, help="System prompt; by default none."),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Longest answer, in tokens; by default 512, for a document 2048."
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            metavar="T",
            help="Randomness: 0 always takes the most likely token, as tasks ocr, document and "
            "locate do by default. For other tasks, this and the sampling options below default "
            "to the model's values.",
        ),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            metavar="P", help="Sample from the most likely tokens with this total probability."
        ),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(metavar="K", help="Sample from the K most likely tokens; 0: from all."),
    ] = None,
    min_p: Annotated[
        float | None,
        typer.Option(
            metavar="P", help="Least probability of a token, relative to the most likely."
        ),
    ] = None,
    repetition_penalty: Annotated[
        float | None,
        typer.Option(metavar="X", help="Above 1: tokens that occurred before become less likely."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", help="Seed of the sampling; the same seed repeats the answer."),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="End the answer before this text; repeatable."),
    ] = None,
    schema: Schema = None,
    choices: Choices = None,
    regex: Regex = None,
    grammar: Grammar = None,
    min_pixels: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Least picture area; smaller ones are enlarged. Default: by task."
        ),
    ] = None,
    max_pixels: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Largest picture area; larger ones are reduced. Default: by task."
        ),
    ] = None,
    max_image_pixels: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Refuse pictures with more pixels, JPEG with four times as many. [64000000]",
        ),
    ] = None,
    fps: Annotated[
        float | None,
        typer.Option(metavar="X", help="Frames of a video to look at, a second; by default 2."),
    ] = None,
    num_frames: Annotated[
        int | None,
        typer.Option(metavar="N", help="Frames of a video to look at, in all, instead of --fps."),
    ] = None,
    min_frames: Annotated[
        int | None, typer.Option(metavar="N", help="Least number of frames with --fps. [4]")
    ] = None,
    max_frames: Annotated[
        int | None, typer.Option(metavar="N", help="Largest number of frames with --fps. [768]")
    ] = None,
    start: Annotated[
        float | None, typer.Option(metavar="S", help="Second of the video to start at.")
    ] = None,
    end: Annotated[
        float | None, typer.Option(metavar="S", help="Second of the video to end at.")
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Ask about each moment of a video apart, one every 5s, 2m or 1h: a log of a "
            "camera.",
        ),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option(metavar="N", help="Limit of prompt plus answer, in tokens; by default 16384."),
    ] = None,
    threads: Threads = None,
    speculate: Speculate = None,
) -> None:
    """Answer a question about one or more images, or without images.

    The first use of a checkpoint folder exports it, which may take minutes.

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
    sampling: dict[str, Any] = {
        "max_tokens": max_tokens,
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
        "fps": fps,
        "num_frames": num_frames,
        "min_frames": min_frames,
        "max_frames": max_frames,
        "start": start,
        "end": end,
    }
    given = {key: value for key, value in sampling.items() if value is not None}
    sized = {key: value for key, value in sizes.items() if value is not None}
    step_s = None if every is None else seconds(every, "--every")
    if step_s is not None and len(sources) != 1:
        raise OptionError("--every asks about one video; give one")
    if step_s is not None and draw is not None:
        raise OptionError("--every and --draw exclude each other")
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
    vlm = _load(model, engine_options, context, hint=hint, speculate=speculate)
    if step_s is not None:
        ask_moments(
            vlm, pictures[0], step_s, question, system, given | shape, sized, as_json=as_json
        )
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


def _load(
    model: str | None,
    engine_options: dict[str, Any],
    context: int | None,
    *,
    hint: bool,
    speculate: SpeculateName | None,
) -> VLM:
    """Load a model; export it first if needed. `engine_options`: arguments of EngineOptions."""
    from qwink.cli.loading import load_model
    from qwink.runtime.waiting import Limits

    # There is one question, so allocate memory for one sequence.
    limits = Limits(max_running=1)
    return load_model(model, engine_options, context, limits, hint=hint, speculate=speculate)


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
