"""`qwink bench ladder`: the gain of each optimisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qwink.cli.console import ExportProgress, RecipeName, remark
from qwink.errors import OptionError

if TYPE_CHECKING:
    from qwink.lab.ladder.answers import Quality
    from qwink.lab.ladder.ladder import LadderResult, Times
    from qwink.lab.ladder.questions import Question, Workload
    from qwink.lab.ladder.rungs import Rung
    from qwink.lab.pictures.entry import Entry
    from qwink.model.artifact import Artifact
    from qwink.settings import Settings


def ladder(
    checkpoint: Annotated[
        str,
        typer.Argument(metavar="CHECKPOINT", help="nano, a checkpoint's folder, or a hub id."),
    ] = "nano",
    pictures: Annotated[
        int, typer.Option(metavar="N", help="How many, of all kinds; there are 50.")
    ] = 50,
    max_tokens: Annotated[int, typer.Option(metavar="N", min=1, help="Longest answer.")] = 16,
    max_image_tokens: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="Most visual tokens that any service spends on a picture. The checkpoint's own "
            "limit may be 16384, which takes minutes on a CPU; Qwen's own examples set 1280.",
        ),
    ] = 1280,
    recipe: Annotated[
        RecipeName | None,
        typer.Option(help="Of the rungs from the quantised one on; by default $QWINK_RECIPE."),
    ] = None,
    artifact: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=DIR", help="A recipe's artifact; by default exported into the cache."
        ),
    ] = None,
    users: Annotated[
        int | None, typer.Option(metavar="N", min=2, help="On the last rung; by default 4.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="By default one a physical core.")
    ] = None,
    rungs: Annotated[
        str | None,
        typer.Option(metavar="KEY,...", help="Only these, such as a,d,f; by default all."),
    ] = None,
    gpu: Annotated[
        bool, typer.Option("--gpu", help="Run the ladder of PyTorch on a GPU instead.")
    ] = False,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --gpu: by default cuda; cpu tries it.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the JSON document there.")
    ] = None,
) -> None:
    """Run a plain service, then add one optimisation after the other, and time each rung.

    Needs the extra bench for its pictures, and the extra torch for the plain service: without
    it, the rungs on PyTorch are left out, and the document lists them. Quality is agreement with
    the first rung. If a rung has a different workload (repeated pictures, several users), the
    previous rung runs on that workload too, and the gain is between those two runs.
    Tables go to stderr; the last line of stdout is one JSON document.

    \b
    Examples:
      qwink bench ladder
      qwink bench ladder ~/models/Qwen3-VL-2B-Instruct --pictures 7 --max-tokens 8
      qwink bench ladder ~/models/Qwen3-VL-2B-Instruct --gpu --max-tokens 256
    """
    from qwink.cli.bench.output import check_out, finish
    from qwink.engine.threads import physical_cores
    from qwink.lab.ladder.ladder import LadderPlan, climb
    from qwink.lab.ladder.rungs import cpu_rungs, gpu_rungs
    from qwink.lab.pictures.gallery import choose
    from qwink.settings import Settings

    check_out(out)
    for name, value in (("--recipe", recipe), ("--artifact", artifact), ("--users", users)):
        if gpu and value:
            raise OptionError(f"{name} is for the ladder on the CPU; leave out {name} or --gpu")
    if device is not None and not gpu:
        raise OptionError("--device is for the ladder on a GPU; add --gpu")
    settings = Settings.from_environment()
    final, users = recipe or settings.recipe, users or 4
    if final == "exact" and not gpu:
        raise OptionError(
            "the ladder compares exact with another recipe; give that one with --recipe"
        )
    threads = threads or settings.threads or physical_cores()
    whole = gpu_rungs(max_tokens) if gpu else cpu_rungs(final, users, max_tokens)
    wanted = _chosen(whole, rungs)
    folder = _checkpoint(checkpoint, settings)
    entries = choose(pictures)
    artifacts = _artifacts(folder, wanted, artifact or [], settings)
    device = (device or "cuda") if gpu else "cpu"
    record = {
        "ladder": "gpu" if gpu else "cpu",
        "device": device,
        "pictures": pictures,
        "max_tokens": max_tokens,
        "max_image_tokens": max_image_tokens,
        "threads": threads,
        "users": users,
    }
    work = _work(folder, entries, max_image_tokens, settings)
    plan = LadderPlan(folder, wanted, work, artifacts, record, users, threads, device)
    result = climb(plan, remark)
    show_ladder(result.measured)
    finish(result.document(), out)


def _chosen(rungs: tuple[Rung, ...], keys: str | None) -> tuple[Rung, ...]:
    """The rungs of these keys, or all. Raises OptionError for an unknown key."""
    known = [rung.key for rung in rungs]
    wanted = known if keys is None else keys.split(",")
    if not set(wanted) <= set(known):
        raise OptionError(f"--rungs is {keys!r}; there are {','.join(known)}")
    return tuple(rung for rung in rungs if rung.key in wanted)


def _checkpoint(reference: str, settings: Settings) -> Path:
    from qwink.model.artifact import is_artifact
    from qwink.runtime.models import find_folder

    folder = find_folder(reference, settings)
    if is_artifact(folder):
        raise OptionError(f"{folder} is an artifact; the ladder starts from its checkpoint")
    return folder


def _work(
    checkpoint: Path, entries: Sequence[Entry], max_image_tokens: int, settings: Settings
) -> Mapping[Workload, Sequence[Question]]:
    """The questions to the services."""
    from qwink.lab.ladder.questions import workloads
    from qwink.lab.pictures.gallery import write
    from qwink.model.config import load_config

    limits = load_config(checkpoint).preprocessor
    pictures = write(entries, settings.home / "bench")
    return workloads(pictures, (limits.min_pixels, limits.max_pixels), max_image_tokens)


def _artifacts(
    checkpoint: Path, rungs: Sequence[Rung], given: list[str], settings: Settings
) -> dict[str, Artifact]:
    """The model of each recipe that a rung needs."""
    from qwink.lab.ladder.rungs import Ours
    from qwink.model.artifact import Artifact
    from qwink.model.weights import fingerprint
    from qwink.runtime.models import find_artifact

    recipes = {rung.service.recipe for rung in rungs if isinstance(rung.service, Ours)}
    folders = dict(item.split("=", 1) for item in given if "=" in item)
    if len(folders) < len(given) or not set(folders) <= recipes:
        names = " or ".join(sorted(recipes))
        raise OptionError(f"--artifact takes NAME=DIR, with the name {names}")
    found = {}
    for recipe in sorted(recipes):
        if recipe not in folders:
            with ExportProgress(f"{checkpoint.name}, {recipe}") as progress:
                found[recipe] = find_artifact(checkpoint, recipe, settings, progress)
            progress.finish(found[recipe].folder)
            continue
        found[recipe] = Artifact.load(folders[recipe])
        manifest = found[recipe].manifest
        if manifest.recipe != recipe or manifest.source_fingerprint != fingerprint(checkpoint):
            raise OptionError(
                f"{folders[recipe]} is not made from {checkpoint} with recipe {recipe}; "
                f"leave --artifact {recipe}=... out to have it exported"
            )
    return found


def show_ladder(result: LadderResult) -> None:
    """Times and quality of the rungs, and those left out."""
    from qwink.cli.bench.output import milliseconds, show

    title = f"{result.model}, {result.settings['pictures']} pictures"
    show(
        f"{title}: ms of a request",
        ["rung", "mean", "p95", "load", "prepare", "first token", "per answer", "gain", "all"],
        [
            [
                f"{rung.key} {rung.name}",
                *(milliseconds(value) for value in _shown(rung.times)),
                "" if rung.gain is None else f"{rung.gain:.2f}",
                f"{rung.gain_over_first:.2f}",
            ]
            for rung in result.rungs
        ],
    )
    show(
        f"{title}: agreement with {result.rungs[0].key}, and true answers",
        ["rung", "first token", "answer", "logits", "PSNR dB", "SSIM", "true"],
        [
            [f"{rung.key} {rung.name}", *_quality(rung.quality), f"{rung.right}/{rung.known}"]
            for rung in result.rungs
        ],
    )
    for key, why in result.left_out.items():
        remark(f"{key} is left out: it {why}")


def _shown(times: Times) -> tuple[float, ...]:
    parts = times.load_ms, times.prepare_ms, times.first_token_ms
    return times.mean_ms, times.p95_ms, *parts, times.per_answer_ms


def _quality(quality: Quality | None) -> list[str]:
    """Agreement with the first rung, of answers and of pictures."""
    if quality is None:
        return [""] * 5
    return [
        f"{quality.first_token:.0%}",
        f"{quality.answer:.0%}",
        f"{quality.logits:.3f}",
        "same" if quality.psnr_db is None else f"{quality.psnr_db:.1f}",
        f"{quality.ssim:.3f}",
    ]
