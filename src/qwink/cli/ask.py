"""`qwink ask`: answer a question about images."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qwink.cli.console import (
    RecipeName,
    SpeculateName,
    as_utf8,
    on_terminal,
    remark,
)
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
from qwink.errors import ImageError, ImageTooLarge, OptionError

if TYPE_CHECKING:
    from qwink.runtime.vlm import VLM
    from qwink.types import Event, Result

PICTURE_SUFFIXES = (
    *(".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"),
    *(".avif", ".heic", ".heif", ".mp4", ".mov", ".mkv", ".webm", ".avi"),
)
# Control characters. A picture could make the model print terminal escape sequences.
_CONTROLS = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


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
      cat photo.jpg | qwink ask - --json
      qwink ask receipt.jpg -q "What was bought?" --schema receipt.schema.json
      qwink ask photo.jpg -q "Day or night?" --choices day,night --json
      qwink ask clip.mp4 -q "What happens?"
      qwink ask camera.mp4 --every 5s -q "How many people are there?"
    """
    sources = images or []
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
    _check(sources, given, sized)
    if len(sources) > 1:
        remark(
            f"asking about {len(sources)} pictures together, in one question; for an answer about "
            "each: qwink batch"
        )
    shape = shape_options(schema, choices, regex, grammar)
    pictures = _read_stdin(sources)
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
        _ask_moments(
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
    if timings:
        show_timings(result, about(vlm))


def _ask_moments(
    vlm: VLM,
    source: str | bytes,
    step_s: float,
    question: str | None,
    system: str | None,
    sampling: dict[str, Any],
    sizes: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    """Ask about moments of a video one after the other: a line for each."""
    from qwink.cli.report import about, as_document, show_remarks
    from qwink.inputs.frames import VideoOptions
    from qwink.inputs.images import MAX_IMAGE_PIXELS
    from qwink.runtime.moments import moments
    from qwink.runtime.preparation import fetched

    part = VideoOptions(start=sizes.pop("start", None), end=sizes.pop("end", None))
    extra = [name for name in ("fps", "num_frames", "min_frames", "max_frames") if name in sizes]
    if extra:
        raise OptionError(f"--every and --{extra[0].replace('_', '-')} exclude each other")
    limit = sizes.get("max_image_pixels", MAX_IMAGE_PIXELS)
    if sizes.get("task", "auto") == "auto":
        sizes["task"] = "frame"
    for moment in moments(fetched(source, None), step_s, part, limit):
        result = vlm.ask(moment.picture, question, system=system, **sampling, **sizes)
        if as_json:
            document = {"time_s": moment.time_s, **as_document(result, about(vlm))}
            typer.echo(json.dumps(document, ensure_ascii=False).encode())
        else:
            typer.echo(
                f"{moment.time_s:.1f} s: {' '.join(result.text.split())}".translate(_CONTROLS)
            )
            show_remarks(result)


def _check(sources: list[str], sampling: dict[str, Any], sizes: dict[str, Any]) -> None:
    """Check options and pictures before the model is loaded, which can take minutes."""
    from qwink.engine.sampler import validate
    from qwink.inputs.containers import is_video
    from qwink.inputs.images import MAX_IMAGE_PIXELS, open_image
    from qwink.inputs.video import open_video
    from qwink.types import SamplingParams

    validate(SamplingParams(**sampling))
    limit = sizes.get("max_image_pixels", MAX_IMAGE_PIXELS)
    if limit < 1:
        raise OptionError(f"max_image_pixels is {limit}; it must be 1 or more")
    if sources.count("-") > 1:
        raise OptionError("stdin holds one picture; give - once")
    if "-" in sources and sys.stdin is not None and sys.stdin.isatty():
        raise OptionError("- reads a picture from stdin; pipe one in: qwink ask - < photo.jpg")
    for source in sources:
        # A named pipe, such as the shell's <(...), can be read only once.
        if ":" not in source[:8] and source != "-" and not _is_pipe(source):
            try:
                if is_video(source):
                    open_video(source, limit)
                else:
                    open_image(source, limit)
            except ImageError as error:
                hint = _question_hint(source, sources)
                raise ImageError(f"{error}; {hint}") if hint else error from None


def _is_pipe(source: str) -> bool:
    try:
        return Path(source).is_fifo()
    except (OSError, ValueError):  # no path, such as a text that is too long
        return False


def _question_hint(source: str, sources: list[str]) -> str:
    """How to give the question, if `source` looks like one and is no file."""
    looks = " " in source.strip() or source.rstrip().endswith(("?", "\uff1f"))
    if not looks or Path(source).suffix.lower() in PICTURE_SUFFIXES or len(source) > 500:
        return ""
    pictures = " ".join(shlex.quote(other) for other in sources if other != source)
    return f"a question goes behind -q: qwink ask {pictures or 'IMAGE'} -q {shlex.quote(source)}"


def _read_stdin(sources: list[str]) -> list[str | bytes]:
    """The sources, with - replaced by the bytes on stdin."""
    return [_stdin_bytes() if source == "-" else source for source in sources]


def _stdin_bytes() -> bytes:
    from qwink.inputs.files import MAX_FILE_BYTES

    if sys.stdin is None:
        raise OptionError("- reads a picture from stdin, which is closed")
    data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ImageTooLarge(f"stdin has more than {MAX_FILE_BYTES >> 20} MiB; reduce the picture")
    return data


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
    removed = _CONTROLS if sys.stdout is not None and sys.stdout.isatty() else {}
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
