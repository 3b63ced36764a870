"""`qwink bench stages`: the time of each stage of a request on this machine."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from qwink.cli.console import ExportProgress, RecipeName, remark

if TYPE_CHECKING:
    from qwink.model.artifact import Artifact


def stages(
    image: Annotated[
        Path | None,
        typer.Argument(help="A picture to measure with; by default one that qwink draws."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="REF", help="As for qwink ask; by default $QWINK_MODEL, else nano."),
    ] = None,
    recipe: Annotated[
        RecipeName | None, typer.Option(help="How the model computes, see qwink models.")
    ] = None,
    threads: Annotated[
        str | None,
        typer.Option(metavar="N,...", help="Threads to try; by default 1, 2, 4, ... all cores."),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE,...",
            help="Areas as 448x448, longest sides as 768px, image tokens as 1024t; "
            "by default 224x224,336x336,448x448,768px,1024t, as far as the model takes them.",
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(metavar="N", min=1, help="Answers of each size, after one to warm up.")
    ] = 5,
    answer_tokens: Annotated[int, typer.Option(metavar="N", min=1, help="Longest answer.")] = 16,
    price_per_hour: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            help="Price of an hour of this machine: adds what images cost, see bench cost.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the JSON document there.")
    ] = None,
) -> None:
    """Measure decode, resize, encode, prefill and generate, memory and cold start.

    For each number of threads, a new process without caches is measured. The tables also show the
    floor of each stage: the least time for the model's work at this machine's speed in a short
    trial. Tables go to stderr; the last line of stdout is one JSON document.

    \b
    Examples:
      qwink bench stages
      qwink bench stages photo.jpg --model ~/models/Qwen3-VL-2B-Instruct --recipe fast
      qwink bench stages --threads 2,4 --sizes 448x448 --price-per-hour 0.08 --out speed.json
    """
    from qwink.cli.bench.cost import priced
    from qwink.cli.bench.output import check_out, finish, numbers
    from qwink.cli.bench.tables import show_stages
    from qwink.lab.cost.price import Tariff
    from qwink.lab.stages.measure import StagesPlan, measure_stages

    check_out(out)
    counts = numbers(threads, "--threads") if threads is not None else _all_threads()
    names = tuple(sizes.split(",")) if sizes is not None else None
    tariff = None if price_per_hour is None else Tariff(price_per_hour, price_per_hour)
    with TemporaryDirectory() as folder:
        picture, picture_size = _picture(image, Path(folder))
        artifact, areas = _model(model, recipe, names, picture_size)
        plan = StagesPlan(
            artifact, str(picture), picture_size, areas, counts, rounds, answer_tokens
        )
        result = measure_stages(plan, remark)
    show_stages(result.measured)
    document = result.document()
    if tariff is not None:
        document["cost"] = priced(result, tariff)
    finish(document, out)


def _all_threads() -> tuple[int, ...]:
    """1, 2, 4, ... and all physical cores."""
    from qwink.engine.threads import physical_cores

    cores = physical_cores()
    return tuple(sorted({cores, *(1 << bit for bit in range(cores.bit_length()))}))


def _picture(image: Path | None, folder: Path) -> tuple[Path, tuple[int, int]]:
    """Path and upright size of the picture; without one, it is drawn in `folder`."""
    from qwink.inputs.images import open_image
    from qwink.lab.pictures.sample import as_jpeg, sample_picture

    path = image or folder / "sample.jpg"
    if image is None:
        path.write_bytes(as_jpeg(sample_picture()))
    return path, open_image(path).size


def _model(
    model: str | None,
    recipe: str | None,
    names: tuple[str, ...] | None,
    picture_size: tuple[int, int],
) -> tuple[Artifact, tuple[tuple[str, int], ...]]:
    """The artifact, and the sizes that it takes as names and areas in pixels."""
    from qwink.lab.stages.sizes import choose_sizes
    from qwink.runtime.models import find_artifact
    from qwink.settings import Settings

    settings = Settings.from_environment()
    reference = model or settings.model
    with ExportProgress(reference) as progress:
        artifact = find_artifact(reference, recipe, settings, progress)
    progress.finish(artifact.folder)
    limit = artifact.config.preprocessor.max_pixels
    chosen, skipped = choose_sizes(names, picture_size, limit)
    if skipped:
        remark(f"left out: {', '.join(skipped)}; this model takes up to {limit} pixels")
    return artifact, tuple((size.name, size.area(*picture_size)) for size in chosen)
