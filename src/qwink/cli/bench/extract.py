"""`qwink bench extract`: what drafts and forced tokens save."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qwink.cli.console import ExportProgress, RecipeName, remark
from qwink.cli.options import Threads
from qwink.errors import OptionError

if TYPE_CHECKING:
    from qwink.lab.extract.measure import Arm, ExtractResult


def extract(
    model: Annotated[
        str | None,
        typer.Argument(metavar="REF", help="As for qwink ask; by default $QWINK_MODEL, else nano."),
    ] = None,
    recipe: Annotated[
        RecipeName | None, typer.Option(help="How the model computes, see qwink models.")
    ] = None,
    threads: Threads = None,
    arms: Annotated[
        str,
        typer.Option(
            metavar="ARM,...",
            help="off, forced (by the record's schema), drafts, both; off is always measured.",
        ),
    ] = "off,forced,drafts,both",
    records: Annotated[
        int, typer.Option(metavar="N", min=0, max=48, help="Records, in turns of 8 layouts.")
    ] = 48,
    pages: Annotated[
        int, typer.Option(metavar="N", min=0, max=12, help="Pages of plain text.")
    ] = 12,
    noise: Annotated[
        int, typer.Option(metavar="N", min=0, max=12, help="Answers of random tokens.")
    ] = 12,
    image_tokens: Annotated[
        int, typer.Option(metavar="N", min=4, help="Tokens of each picture, about.")
    ] = 256,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the JSON document there.")
    ] = None,
) -> None:
    """Time known answers: records as JSON, pages of text and random text, by several ways.

    The engine computes in full; then the token of the known answer takes the place of the chosen
    one, so that the times are those of a model that reads without mistakes. Tables go to stderr;
    the last line of stdout is one JSON document.

    \b
    Examples:
      qwink bench extract
      qwink bench extract Qwen/Qwen3-VL-2B-Instruct --out extract.json
      qwink bench extract Qwen/Qwen3-VL-2B-Instruct --records 16 --pages 4 --noise 2
    """
    from qwink.cli.bench.output import check_out, finish
    from qwink.lab.extract.measure import ARMS, ExtractPlan, measure_extract
    from qwink.runtime.engines import EngineOptions
    from qwink.runtime.models import find_artifact, open_model
    from qwink.settings import Settings

    check_out(out)
    wanted = {part.strip() for part in arms.split(",")}
    if wanted - set(ARMS):
        unknown = ", ".join(sorted(wanted - set(ARMS)))
        raise OptionError(f"--arms has {unknown}; known are {', '.join(ARMS)}")
    chosen: tuple[Arm, ...] = tuple(arm for arm in ARMS if arm == "off" or arm in wanted)
    settings = Settings.from_environment()
    reference = model or settings.model
    with ExportProgress(reference) as progress:
        artifact = find_artifact(reference, recipe, settings, progress)
    progress.finish(artifact.folder)
    options = EngineOptions.resolve(settings, engine="onnx", threads=threads)
    plan = ExtractPlan(
        open_model(artifact.folder, options),
        artifact.manifest.recipe,
        options.threads,
        chosen,
        {"json": records, "text": pages, "random": noise},
        image_tokens,
    )
    result = measure_extract(plan, remark)
    show_extract(result.measured)
    finish(result.document(), out)


def show_extract(result: ExtractResult) -> None:
    """A row for each kind of answer and arm."""
    from qwink.cli.bench.output import show

    show(
        f"{result.model} {result.recipe}: times of off over those of each arm",
        [
            *("answers", "arm", "tokens", "steps", "tokens/step", "drafts right", "wrong"),
            *("ms/token", "generate", "total"),
        ],
        [
            [
                f"{row.answers} {row.kind}",
                row.arm,
                str(row.tokens),
                str(row.steps),
                f"{row.tokens_per_step:.2f}",
                str(row.accepted),
                str(row.rejected),
                f"{row.generate_ms / (row.tokens - row.answers):.2f}",
                f"{row.generate_gain:.2f}×",
                f"{row.total_gain:.2f}×",
            ]
            for row in result.arms
        ],
    )
