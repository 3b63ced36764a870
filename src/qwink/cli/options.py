"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from qwink.cli.console import DtypeName, EngineName, QuantizeName, SpeculateName, TaskName, as_utf8

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
