"""Loading a model for a command that asks: exported first if need be, with a bar on stderr."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from qwink.cache.shared import open_store
from qwink.cli.console import ExportProgress, SpeculateName, remark
from qwink.errors import OptionError

if TYPE_CHECKING:
    from qwink.runtime.vlm import VLM
    from qwink.runtime.waiting import Limits

NANO_HINT = "hint: nano is a tiny demo; for real use: qwink pull Qwen/Qwen3-VL-2B-Instruct"


def load_model(
    model: str | None,
    engine_options: dict[str, Any],
    context: int | None,
    limits: Limits,
    *,
    hint: bool,
    speculate: SpeculateName | None = None,
    store: str | None = None,
    store_ttl: float | None = None,
) -> VLM:
    """Load a model; export it first if needed. `engine_options`: arguments of EngineOptions.

    `store` and `store_ttl` override the settings.
    """
    from qwink.settings import Settings

    settings = Settings.from_environment()
    if store:
        settings = replace(settings, store=store)
    if store_ttl is not None:
        if not settings.store:
            raise OptionError("--store-ttl needs a --store")
        settings = replace(settings, store_ttl=store_ttl)
    # Its client takes a while to import; a thread does it while the engine's libraries are loaded.
    shared = open_store(settings)
    from qwink.runtime.engines import EngineOptions
    from qwink.runtime.models import find_model, load

    reference = model or settings.model
    if hint and model is None and reference == "nano":
        remark(NANO_HINT)
    with ExportProgress(reference) as progress:
        options = EngineOptions.resolve(settings, **engine_options)
        folder = find_model(reference, options, settings, progress)
    progress.finish(folder)
    return load(
        folder,
        **engine_options,
        context=context,
        limits=limits,
        shared=shared,
        speculate=speculate or "auto",
        settings=settings,
    )
