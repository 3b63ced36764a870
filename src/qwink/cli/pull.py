"""`qwink pull`: download a checkpoint from a hub and export it."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import typer

from qwink.cli.console import Bar, ExportProgress, RecipeName, format_bytes, on_terminal, remark
from qwink.errors import OptionError

if TYPE_CHECKING:
    from qwink.export.recipe import Recipe, Scheme
    from qwink.hub.download import DownloadProgress
    from qwink.hub.listing import Hub
    from qwink.settings import Settings


def pull(
    repository: Annotated[
        str,
        typer.Argument(metavar="REPO", help="Repository on the hub: Qwen/Qwen3-VL-2B-Instruct."),
    ],
    hub: Annotated[
        Literal["huggingface", "modelscope"],
        typer.Option("--from", help="The hub to download from."),
    ] = "huggingface",
    revision: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Branch, tag or commit; by default the newest."),
    ] = None,
    recipe: Annotated[
        RecipeName | None,
        typer.Option(
            help="Precision and quantization, see qwink models; by default $QWINK_RECIPE, "
            "else balanced."
        ),
    ] = None,
    no_export: Annotated[
        bool, typer.Option("--no-export", help="Only download; the first use exports.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for the checkpoint; by default one in the cache ($QWINK_HOME), which "
            "--model finds by the repository's name.",
        ),
    ] = None,
) -> None:
    """Download a checkpoint from a hub, then export it.

    Prints the command that asks the model a question. If it is interrupted, run the same command
    again to resume. For private or licensed checkpoints, set HF_TOKEN.

    \b
    Examples:
      qwink pull Qwen/Qwen3-VL-2B-Instruct
      qwink pull Qwen/Qwen3-VL-2B-Instruct --from modelscope --recipe small
    """
    from qwink.export.recipe import get_recipe
    from qwink.hub.download import download, missing_bytes
    from qwink.hub.http import client
    from qwink.runtime.models import artifact_folder, checkpoint_folder, find_artifact
    from qwink.settings import Settings, expand_user

    if no_export and recipe is not None:
        raise OptionError(
            "--recipe is for the export, but --no-export skips it; give only one of them"
        )
    settings = Settings.from_environment()
    chosen = get_recipe(recipe or settings.recipe)
    folder = expand_user(out) if out is not None else checkpoint_folder(repository, settings)
    source = _hub(hub, settings)
    with client(source.headers) as http:
        listing = source.find(http, repository, revision)
        missing = missing_bytes(listing, folder)
        exported = not missing and artifact_folder(folder, chosen, settings).is_dir()
        export = 0 if no_export or exported else export_bytes(listing.num_bytes, chosen)
        _check_space({folder: missing, settings.artifacts: export})
        with _DownloadBar(repository, missing) as progress:
            download(http, listing, folder, progress)
    remark(f"{repository} is in {folder}: {format_bytes(listing.num_bytes)}")
    if not no_export:
        with ExportProgress(repository) as export_progress:
            artifact = find_artifact(folder, chosen.name, settings, export_progress)
        export_progress.finish(artifact.folder)
    model = repository if out is None else shlex.quote(str(folder))
    options = "" if chosen.name == settings.recipe else f" --recipe {chosen.name}"
    typer.echo(f"qwink ask IMAGE --model {model}{options}")


def export_bytes(checkpoint_bytes: int, recipe: Recipe) -> int:
    """An estimate of an artifact's size, rather too large. Assumes a checkpoint of 16 bits."""
    copies = _bytes_each(recipe.decode)
    if recipe.prefill is not None:
        copies += _bytes_each(recipe.prefill)
    # A quarter more for the tables that are copied and the layers of higher precision.
    return int(checkpoint_bytes * (copies / 2 + 0.25))


def _bytes_each(scheme: Scheme) -> float:
    if scheme.kind == "nbits":
        return scheme.bits / 8 + 4 / scheme.block
    return 4.0 if scheme.kind == "fp32" else 1.0


def _hub(name: str, settings: Settings) -> Hub:
    from qwink.hub.listing import HuggingFace, ModelScope

    if name == "modelscope":
        return ModelScope(settings.modelscope_endpoint)
    return HuggingFace(settings.hf_endpoint, settings.hf_token)


def _check_space(needs: dict[Path, int]) -> None:
    """Raises DownloadError unless each disk has room for what will be written to it."""
    from qwink.errors import DownloadError

    disks: dict[int, tuple[Path, int]] = {}
    for folder, num_bytes in needs.items():
        place = folder.absolute()
        while not place.exists():
            place = place.parent
        device = place.stat().st_dev
        disks[device] = place, disks.get(device, (place, 0))[1] + num_bytes
    for place, needed in disks.values():
        free = shutil.disk_usage(place).free
        if needed > free:
            raise DownloadError(
                f"download and export need {format_bytes(needed)} in {place}, but "
                f"{format_bytes(free)} are free; free some space, or choose another disk with "
                "--out or QWINK_HOME"
            )


class _DownloadBar(Bar):
    """A progress bar on stderr during the download; without a terminal, one line at its start."""

    def __init__(self, name: str, missing: int) -> None:
        self.name, self._missing = name, missing
        self._task: Any = None

    def __enter__(self) -> Self:
        if self._missing and not on_terminal():
            remark(f"downloading {self.name}: {format_bytes(self._missing)}")
        elif self._missing:
            self._start()
        return self

    def _start(self) -> None:
        from rich.markup import escape
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        self._open(
            TextColumn(f"downloading {escape(self.name)}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        self._task = self._bar.add_task("", total=None)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            remark("interrupted; run the same command again to resume")

    def __call__(self, progress: DownloadProgress) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=progress.done, total=progress.total)
