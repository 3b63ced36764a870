"""`qwink verify`: how much a recipe changes the answers about the user's pictures."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from qwink.cli.console import Bar, ExportProgress, on_terminal, remark
from qwink.cli.options import Question, Task, Threads
from qwink.errors import ArtifactError, ImageError, OptionError

if TYPE_CHECKING:
    from qwink.lab.verify.run import Skipped
    from qwink.lab.verify.samples import Sample
    from qwink.model.artifact import Artifact
    from qwink.settings import Settings

BUILT_IN = "these pictures are drawings; before you rely on a recipe, give your own with --images"


def verify(
    checkpoint: Annotated[
        str,
        typer.Argument(
            help="Folder of a Qwen3-VL checkpoint, or a hub id whose checkpoint is on this "
            "machine.",
        ),
    ],
    images: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder with pictures; by default a dozen built-in ones."),
    ] = None,
    recipe: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Recipe to compare with exact: quality, balanced, fast or small; may be "
            "repeated. By default $QWINK_RECIPE, else balanced.",
        ),
    ] = None,
    question: Question = None,
    task: Task = "auto",
    max_tokens: Annotated[
        int, typer.Option(metavar="N", min=1, help="How many tokens of each answer to compare.")
    ] = 32,
    strips: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Compare pages read in N strips with whole pages instead, by the first recipe.",
        ),
    ] = None,
    threads: Threads = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead of the tables.")
    ] = False,
) -> None:
    """Compare recipes with exact, the fp32 reference, on your own pictures.

    Each recipe is fed exact's greedy answers token by token: the tables show how often its first
    choice is the same, the error of its probabilities and states, and its own greedy answer, which
    is what qwink ask gives for tasks that read or locate.
    Recipes are exported on first use. One model is in memory at a time; exact takes the most, for
    the 2B some 9 GB.

    \b
    Examples:
      qwink verify ~/models/Qwen3-VL-2B-Instruct --images ./receipts -q "What is the total?"
      qwink verify ~/models/Qwen3-VL-2B-Instruct --recipe fast --recipe small --json
      qwink verify ~/models/Qwen3-VL-2B-Instruct --images ./scans --strips 4 --max-tokens 800
    """
    from qwink.export.recipe import get_recipe
    from qwink.lab.verify.run import VerifyOptions
    from qwink.lab.verify.run import verify as run
    from qwink.lab.verify.samples import built_in_samples
    from qwink.model.artifact import is_artifact
    from qwink.runtime.models import find_folder
    from qwink.settings import Settings

    settings = Settings.from_environment()
    names = list(dict.fromkeys(recipe or [settings.recipe]))
    for name in names:
        get_recipe(name)
        if name == "exact":
            raise OptionError(
                "exact is what recipes are compared with; name another, such as --recipe balanced"
            )
    if threads is not None and threads < 1:
        raise OptionError(f"threads is {threads}; it must be 1 or more")
    samples, skipped = _usable(images) if images is not None else (built_in_samples(), [])
    folder = find_folder(checkpoint, settings)
    if strips is not None:
        _compare_strips(folder, names[0], samples, strips, max_tokens, threads, as_json=as_json)
        return
    if is_artifact(folder):
        raise ArtifactError(f"{folder}: an artifact; give the checkpoint it was made from")
    exact, *candidates = (_artifact(folder, name, settings) for name in ("exact", *names))
    options = VerifyOptions((question or "").strip() or None, task, max_tokens, threads)
    with _Progress() as progress:
        found = run(exact, candidates, samples, options, settings, progress)
    skipped += found.skipped
    for picture in skipped:
        remark(f"skipped {picture.reason}")
    if as_json:
        document = asdict(found) | {
            "skipped": [asdict(picture) for picture in skipped],
            "built_in_pictures": images is None,
            "options": asdict(options),
        }
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False).encode())
        return

    from qwink.cli.comparison import show_comparison

    show_comparison(found)
    if images is None:
        remark(BUILT_IN)


def _compare_strips(
    folder: Path,
    recipe: str,
    samples: list[Sample],
    strips: int,
    max_tokens: int,
    threads: int | None,
    *,
    as_json: bool,
) -> None:
    """Pages in strips compared with whole pages. Raises OptionError for a wrong number."""
    from qwink.cli.comparison import show_strips
    from qwink.lab.verify.strips import compare_strips
    from qwink.runtime.models import load
    from qwink.runtime.strips import check_strips

    check_strips(strips)
    with load(folder, recipe=recipe, threads=threads) as vlm, _Progress() as progress:
        found = compare_strips(
            vlm, samples, strips, max_tokens, lambda done, of: progress("strips", done, of)
        )
    if as_json:
        pages = [asdict(page) for page in found]
        typer.echo(json.dumps({"strips": strips, "pages": pages}, ensure_ascii=False).encode())
    else:
        show_strips(found)


def _usable(folder: Path) -> tuple[list[Sample], list[Skipped]]:
    """The folder's pictures, and those that cannot be read. Call before any export.

    Raises ImageError if none can be used.
    """
    from qwink.inputs.images import decode, open_image
    from qwink.lab.verify.run import Skipped
    from qwink.lab.verify.samples import samples_in

    usable, skipped = [], []
    for sample in samples_in(folder):
        try:
            decode(open_image(sample.image), at_least=(1, 1))
            usable.append(sample)
        except ImageError as error:
            skipped.append(Skipped(sample.name, str(error)))
    if not usable:
        raise ImageError(f"no picture in {folder} can be used; the first: {skipped[0].reason}")
    return usable, skipped


def _artifact(checkpoint: Path, recipe: str, settings: Settings) -> Artifact:
    from qwink.runtime.models import find_artifact

    with ExportProgress(f"{checkpoint.name}, {recipe}") as progress:
        artifact = find_artifact(checkpoint, recipe, settings, progress)
    progress.finish(artifact.folder)
    return artifact


class _Progress(Bar):
    """A bar on stderr for each recipe; without a terminal, a line when it starts."""

    def __init__(self) -> None:
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Self:
        if on_terminal():
            self._open()
        return self

    def __call__(self, recipe: str, done: int, total: int) -> None:
        if recipe not in self._tasks:
            if self._bar is None:
                remark(f"{recipe}: {total} pictures")
            self._tasks[recipe] = self._bar and self._bar.add_task(recipe, total=total)
        if self._bar is not None:
            self._bar.update(self._tasks[recipe], completed=done)
