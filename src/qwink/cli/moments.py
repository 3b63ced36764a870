"""`qwink ask --every`: a question about moments of a video, one after the other."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import typer

from qwink.cli.console import CONTROLS
from qwink.errors import OptionError

if TYPE_CHECKING:
    from qwink.runtime.vlm import VLM


def seconds(text: str) -> float:
    """A time such as 5s, 0.5, 2m or 1h, in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|m|min|h)?", text.strip().lower())
    seconds = 0.0
    if match:
        unit = {"ms": 1e-3, None: 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}[match[2]]
        seconds = float(match[1]) * unit
    if seconds <= 0:
        raise OptionError(f"--every is {text!r}; write a time such as 5s, 2m or 1h")
    return seconds


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
