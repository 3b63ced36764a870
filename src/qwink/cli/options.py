"""Options that several commands have, spelt once."""

from __future__ import annotations

from typing import Annotated

import typer

from qwink.cli.console import DtypeName, EngineName, QuantizeName, TaskName

Question = Annotated[
    str | None,
    typer.Option("--question", "-q", help="The question; by default what the task asks."),
]
Task = Annotated[
    TaskName, typer.Option(help="What the answer needs to see; decides the pictures' size.")
]
Engine = Annotated[
    EngineName | None,
    typer.Option(
        help="onnx, for CPUs, or torch (pip install 'qwink[torch]'); by default "
        "$QWINK_ENGINE, else auto: torch where a GPU and PyTorch are."
    ),
]
Device = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="For torch: auto, cpu, cuda or cuda:N. [auto]"),
]
Dtype = Annotated[
    DtypeName | None,
    typer.Option(help="For torch: type of numbers; by default what the device does best."),
]
Quantize = Annotated[
    QuantizeName | None,
    typer.Option(help="For torch: weights in 8 bits, for small cards."),
]
Threads = Annotated[
    int | None,
    typer.Option(metavar="N", help="Threads; by default $QWINK_THREADS, else one a core."),
]
