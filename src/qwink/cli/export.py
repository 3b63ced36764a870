"""`qwink export`: build an artifact before its first use, or in a folder that the user names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qwink.cli.console import ExportProgress, LayoutName, RecipeName


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
    layout: Annotated[
        LayoutName | None,
        typer.Option(
            help="Which operators compute: native, qwink's own, for x86-64 processors with AVX2; "
            "onnxruntime, for all processors. By default native if it runs here. Only with --out."
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
    from qwink.native import NATIVE_LAYOUT, Layout
    from qwink.runtime.models import artifact_folder, find_folder
    from qwink.settings import Settings

    settings = Settings.from_environment()
    source = find_folder(checkpoint, settings)
    if is_artifact(source):
        raise ArtifactError(f"{source}: an artifact already; give the checkpoint it was made from")
    chosen = get_recipe(recipe or settings.recipe)
    if layout is not None and out is None:
        raise OptionError("--layout needs --out; the cache holds the fastest layout")
    target = out if out is not None else artifact_folder(source, chosen, settings)
    if target.exists() and not force:
        raise ArtifactError(
            f"{target}: already exists; choose another folder with --out, or add --force"
        )
    with ExportProgress(checkpoint) as progress:
        wanted: Layout | None = NATIVE_LAYOUT if layout == "native" else layout
        artifact = build(
            source,
            target,
            chosen,
            progress,
            overwrite=force,
            layout=wanted,
            way_out="choose another folder with --out or QWINK_HOME",
        )
    progress.finish(artifact.folder)
    typer.echo(artifact.folder)
