"""Options that several commands share."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from qwink.cli.console import (
    DtypeName,
    EngineName,
    QuantizeName,
    RecipeName,
    SpeculateName,
    TaskName,
    as_utf8,
)
from qwink.errors import OptionError

Question = Annotated[
    str | None,
    typer.Option(
        "--question",
        "-q",
        callback=as_utf8,
        help="The question; by default the one of the task.",
    ),
]
Task = Annotated[TaskName, typer.Option(help="Kind of question; decides the size of the pictures.")]
Engine = Annotated[
    EngineName | None,
    typer.Option(
        help="onnx, for CPUs, or torch (the extra of that name); by default "
        "$QWINK_ENGINE, else auto: torch if a GPU and PyTorch are available."
    ),
]
Device = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="For torch: auto, cpu, cuda or cuda:N. [auto]"),
]
Dtype = Annotated[
    DtypeName | None,
    typer.Option(help="For torch: number format; by default the best for the device."),
]
Quantize = Annotated[
    QuantizeName | None,
    typer.Option(help="For torch: 8-bit weights, for GPUs with little memory."),
]
Threads = Annotated[
    int | None,
    typer.Option(metavar="N", help="Threads; by default $QWINK_THREADS, else one per core."),
]
Speculate = Annotated[
    SpeculateName | None,
    typer.Option(
        help="auto drafts tokens from the prompt and earlier answers where that saves time; off "
        "drafts none. The answers are the same. [auto]"
    ),
]
Store = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Keep encoded images in a Redis or Valkey that machines share: redis://HOST, "
        "rediss://... with TLS, or unix://PATH; by default $QWINK_STORE. A URL with a password is "
        "better given there.",
    ),
]
StoreTtl = Annotated[
    float | None,
    typer.Option(metavar="S", help="Seconds that the store keeps an entry; by default no limit."),
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="REF",
        help="nano, a folder with a checkpoint or an artifact, or a hub id whose checkpoint "
        "is on this machine; by default $QWINK_MODEL, else nano.",
    ),
]
Recipe = Annotated[
    RecipeName | None,
    typer.Option(
        help="Precision and quantization, see qwink models; by default $QWINK_RECIPE, "
        "else balanced."
    ),
]
System = Annotated[
    str | None,
    typer.Option(metavar="TEXT", callback=as_utf8, help="System prompt; by default none."),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="Longest answer, in tokens; by default 512, for a document 2048."
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        metavar="T",
        help="Randomness: 0 always takes the most likely token, as tasks ocr, document and "
        "locate do by default. For other tasks, this and the sampling options below default "
        "to the model's values.",
    ),
]
TopP = Annotated[
    float | None,
    typer.Option(
        metavar="P", help="Sample from the most likely tokens with this total probability."
    ),
]
TopK = Annotated[
    int | None,
    typer.Option(metavar="K", help="Sample from the K most likely tokens; 0: from all."),
]
MinP = Annotated[
    float | None,
    typer.Option(metavar="P", help="Least probability of a token, relative to the most likely."),
]
RepetitionPenalty = Annotated[
    float | None,
    typer.Option(metavar="X", help="Above 1: tokens that occurred before become less likely."),
]
Seed = Annotated[
    int | None,
    typer.Option(metavar="N", help="Seed of the sampling; the same seed repeats the answer."),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXT", help="End the answer before this text; repeatable."),
]
MinPixels = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="Least picture area; smaller ones are enlarged. Default: by task."
    ),
]
MaxPixels = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="Largest picture area; larger ones are reduced. Default: by task."
    ),
]
MaxImagePixels = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Refuse pictures with more pixels, JPEG with four times as many. [64000000]",
    ),
]
Strips = Annotated[
    str | None,
    typer.Option(
        metavar="auto|off|N",
        help="Read a page in strips of whole lines, which run together: auto where the model "
        "cannot read it as a whole, N from 2 to 8 on request. For questions that want the text. "
        "[auto]",
    ),
]
Context = Annotated[
    int | None,
    typer.Option(metavar="N", help="Limit of prompt plus answer, in tokens; by default 16384."),
]
Fps = Annotated[
    float | None,
    typer.Option(metavar="X", help="Frames of a video to look at, a second; by default 2."),
]
NumFrames = Annotated[
    int | None,
    typer.Option(metavar="N", help="Frames of a video to look at, in all, instead of --fps."),
]
MinFrames = Annotated[
    int | None, typer.Option(metavar="N", help="Least number of frames with --fps. [4]")
]
MaxFrames = Annotated[
    int | None, typer.Option(metavar="N", help="Largest number of frames with --fps. [768]")
]
Start = Annotated[float | None, typer.Option(metavar="S", help="Second of the video to start at.")]
End = Annotated[float | None, typer.Option(metavar="S", help="Second of the video to end at.")]
Every = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Ask about each moment of a video apart, one every 5s, 2m or 1h: a log of a camera.",
    ),
]


def seconds(text: str, option: str) -> float:
    """A time such as 5s, 0.5, 2m or 1h, in seconds. Raises OptionError."""
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|m|min|h)?", text.strip().lower())
    found = 0.0
    if match:
        unit = {"ms": 1e-3, None: 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}[match[2]]
        found = float(match[1]) * unit
    if found <= 0:
        raise OptionError(f"{option} is {text!r}; write a time such as 5s, 2m or 1h")
    return found


def strips_of(text: str | None) -> str | int | None:
    """The value of --strips. Raises OptionError for anything but auto, off or a number."""
    if text is None or text in ("auto", "off"):
        return text
    if not text.isdecimal():
        raise OptionError(f"--strips is {text!r}; use auto, off, or 2 to 8")
    return int(text)
