"""`qwink ask --every`: a question about moments of a video, one after the other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

from qwink.cli.console import CONTROLS
from qwink.errors import OptionError

if TYPE_CHECKING:
    from qwink.runtime.vlm import VLM


def ask_moments(
    vlm: VLM,
    source: str | bytes,
    step_s: float,
    question: str | None,
    system: str | None,
    sampling: dict[str, Any],
    sizes: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    """Ask about moments of a video one after the other: a line for each."""
    from qwink.cli.report import about, as_document, show_remarks
    from qwink.inputs.frames import VideoOptions
    from qwink.inputs.images import MAX_IMAGE_PIXELS
    from qwink.runtime.moments import moments
    from qwink.runtime.preparation import fetched

    part = VideoOptions(start=sizes.pop("start", None), end=sizes.pop("end", None))
    extra = [name for name in ("fps", "num_frames", "min_frames", "max_frames") if name in sizes]
    if extra:
        raise OptionError(f"--every and --{extra[0].replace('_', '-')} exclude each other")
    limit = sizes.get("max_image_pixels", MAX_IMAGE_PIXELS)
    if sizes.get("task", "auto") == "auto":
        sizes["task"] = "frame"
    for moment in moments(fetched(source, None), step_s, part, limit):
        result = vlm.ask(moment.picture, question, system=system, **sampling, **sizes)
        if as_json:
            document = {"time_s": moment.time_s, **as_document(result, about(vlm))}
            typer.echo(json.dumps(document, ensure_ascii=False).encode())
        else:
            typer.echo(
                f"{moment.time_s:.1f} s: {' '.join(result.text.split())}".translate(CONTROLS)
            )
            show_remarks(result)
