"""`qwink export`: build an artifact ahead of its first use, or in a folder of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qwink.cli.console import ExportProgress, KernelsName, RecipeName


def export(
    checkpoint: Annotated[
        str,
        typer.Argument(
            help="Folder of a Qwen3-VL checkpoint, or a hub id whose checkpoint is on this "
            "machine.",
        ),
    ],
    recipe: Annotated[
        RecipeName | None,
        typer.Option(
            help="How the model will compute, see qwink models; by default $QWINK_RECIPE, "
            "else balanced."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder to make; by default the one in the cache where qwink ask looks.",
        ),
    ] = None,
    kernels: Annotated[
        KernelsName | None,
        typer.Option(
            help="Whose operators compute: amx or vnni, for processors that have it, or "
            "onnxruntime, for all; by default the first that runs here. Only with --out."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an artifact that is there already.")
    ] = False,
) -> None:
    """Export a checkpoint: quantise it and write it as graphs for ONNX Runtime.

    Prints the artifact's folder. It appears when it is complete; a broken run leaves nothing.

    \b
    Examples:
      qwink export ~/models/Qwen3-VL-2B-Instruct
      qwink export ~/models/Qwen3-VL-2B-Instruct --recipe quality --out ./quality
    """
    from qwink.errors import ArtifactError, OptionError
    from qwink.export.build import export as build
    from qwink.export.recipe import get_recipe
    from qwink.model.artifact import is_artifact
    from qwink.runtime.models import artifact_folder, find_folder
    from qwink.settings import Settings

    settings = Settings.from_environment()
    source = find_folder(checkpoint, settings)
    if is_artifact(source):
        raise ArtifactError(f"{source}: an artifact already; give the checkpoint it was made from")
    chosen = get_recipe(recipe or settings.recipe)
    if kernels is not None and out is None:
        raise OptionError("--kernels needs --out; the cache holds what is fastest on this machine")
    target = out if out is not None else artifact_folder(source, chosen, settings)
    if target.exists() and not force:
        raise ArtifactError(
            f"{target}: already exists; choose another folder with --out, or add --force"
        )
    with ExportProgress(checkpoint) as progress:
        artifact = build(source, target, chosen, progress, overwrite=force, kernels=kernels)
    progress.finish(artifact.folder)
    typer.echo(artifact.folder)
