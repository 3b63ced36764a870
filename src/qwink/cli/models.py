"""`qwink models`: what can be asked on this machine, and whether it is whole."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qwink.cli.console import folder_size, format_bytes, remark

if TYPE_CHECKING:
    from qwink.settings import Settings


@dataclass(slots=True)
class Found:
    """One model on this machine. `problem` says why it would not load."""

    name: str
    recipe: str | None  # None: a checkpoint, exported on first use
    num_bytes: int
    path: str
    layout: str | None = None  # None: as the recipe
    kernels: str | None = None  # that compute it here; None also if it does not load here
    problem: str | None = None


def models(
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Read every file and compare its hash; exit 1 if one is damaged."
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead of the list.")
    ] = False,
) -> None:
    """List the models on this machine, the recipes and the engines.

    These are nano, which comes with qwink, and what was exported into the cache ($QWINK_HOME).

    \b
    Examples:
      qwink models
      qwink models --check
    """
    from qwink.export.recipe import DEFAULT_RECIPE, RECIPES
    from qwink.runtime.engines import describe_engines
    from qwink.settings import Settings

    settings = Settings.from_environment()
    found = _find(settings, check)
    if as_json:
        recipes = {recipe.name: recipe.summary for recipe in RECIPES.values()}
        document = {
            "home": str(settings.home),
            "checked": check,
            "models": [asdict(model) for model in found],
            "recipes": recipes,
            "engines": describe_engines(),
        }
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False).encode())
    else:
        _show(found)
        typer.echo("\nRecipes")
        for recipe in RECIPES.values():
            default = " (default)" if recipe.name == DEFAULT_RECIPE else ""
            typer.echo(f"  {recipe.name:<9} {recipe.summary}{default}")
        typer.echo("\nEngines")
        for name, summary in describe_engines().items():
            typer.echo(f"  {name:<9} {summary}")
    problems = [model.problem for model in found if model.problem]
    for problem in problems:
        remark(problem)
    if check and problems:
        raise typer.Exit(1)


def _find(settings: Settings, check: bool) -> list[Found]:
    from qwink.runtime.models import find_folder

    nano = find_folder("nano", settings)
    found = [Found("nano", None, folder_size(nano), str(nano))] if any(nano.glob("*")) else []
    if settings.artifacts.is_dir():
        folders = sorted(settings.artifacts.iterdir())
        # A leading dot marks an export under way, or what a killed one left.
        found += [
            _inspect(folder, check)
            for folder in folders
            if folder.is_dir() and not folder.name.startswith(".")
        ]
    return found


def _inspect(folder: Path, check: bool) -> Found:
    from qwink.errors import QwinkError
    from qwink.model.artifact import Artifact
    from qwink.native import capabilities

    model = Found(folder.name, "?", folder_size(folder), str(folder))
    try:
        artifact = Artifact.load(folder)
        manifest, here = artifact.manifest, capabilities()
        model.name, model.recipe, model.layout = manifest.name, manifest.recipe, manifest.layout
        if manifest.layout in here.layouts:
            model.kernels = here.kernels_of(manifest.layout)
        if check:
            artifact.check()
    except QwinkError as error:
        model.problem = str(error)
    return model


def _show(found: list[Found]) -> None:
    rows = [("name", "recipe", "layout", "kernels", "size", "path")]
    rows += [
        (
            model.name,
            model.recipe or "any",
            model.layout or "-",
            model.kernels or "-",
            format_bytes(model.num_bytes),
            model.path,
        )
        for model in found
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for *names, size, path in rows:
        columns = [f"{name:<{width}}" for name, width in zip(names, widths, strict=False)]
        typer.echo("  ".join([*columns, f"{size:>{widths[4]}}", path]))
