"""Compares recipes with the reference on pictures, with one model in memory at a time."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qwink.errors import ImageError
from qwink.lab.verify.figures import (
    PictureFigures,
    RecipeFigures,
    Reference,
    compare,
    confidence,
    doubt,
    repetition,
    summarise,
)
from qwink.lab.verify.observe import Observation, observe, observe_along
from qwink.lab.verify.samples import Sample
from qwink.model.artifact import Artifact
from qwink.runtime.messages import user_message
from qwink.runtime.models import load
from qwink.runtime.preparation import ImageOptions
from qwink.runtime.request import Request
from qwink.runtime.vlm import VLM
from qwink.settings import Settings
from qwink.types import Task

# Called after each picture with the recipe, the number of pictures done, and of all.
Report = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """Question and length of the answers. `question` None: the picture's or task's question."""

    question: str | None = None
    task: Task = "auto"
    max_tokens: int = 32
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """A picture that could not be used, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """The results of `verify`."""

    model: str
    pictures: tuple[Reference, ...]
    skipped: tuple[Skipped, ...]
    recipes: tuple[RecipeFigures, ...]


def verify(
    exact: Artifact,
    candidates: Sequence[Artifact],
    samples: Sequence[Sample],
    options: VerifyOptions,
    settings: Settings,
    report: Report = lambda *_: None,
) -> Comparison:
    """Compare artifacts of one checkpoint with its `exact` one, which answers first.

    The observations of its answers are kept on disk, some 30 MB a picture at the 2B's size. A
    picture that cannot be used is left out. Raises ImageError if none is left, and what `load`
    raises.
    """
    with tempfile.TemporaryDirectory(prefix="qwink-verify-") as name:
        folder = Path(name)
        references, skipped = _observe_reference(exact, samples, folder, options, settings, report)
        if not references:
            raise ImageError(f"no picture could be used; the first: {skipped[0].reason}")
        usable = {reference.name for reference in references}
        used = [sample for sample in samples if sample.name in usable]
        recipes = []
        for artifact in candidates:
            gc.collect()  # the previous model is in reference cycles; free it
            pictures = _compare(artifact, used, folder, options, settings, report)
            recipes.append(summarise(artifact.manifest.recipe, pictures, doubt(references)))
    return Comparison(exact.manifest.name, tuple(references), tuple(skipped), tuple(recipes))


def _compare(
    artifact: Artifact,
    samples: Sequence[Sample],
    folder: Path,
    options: VerifyOptions,
    settings: Settings,
    report: Report,
) -> list[PictureFigures]:
    pictures = []
    with _load(artifact, options, settings) as vlm:
        for index, sample in enumerate(samples):
            reference = Observation.load(_file(folder, sample))
            request = _request(vlm, sample, options)
            found = observe_along(vlm, request, reference.ids.tolist())
            pictures.append(compare(sample.name, found, reference))
            report(artifact.manifest.recipe, index + 1, len(samples))
    return pictures


def _observe_reference(
    exact: Artifact,
    samples: Sequence[Sample],
    folder: Path,
    options: VerifyOptions,
    settings: Settings,
    report: Report,
) -> tuple[list[Reference], list[Skipped]]:
    references: list[Reference] = []
    skipped: list[Skipped] = []
    with _load(exact, options, settings) as vlm:
        for index, sample in enumerate(samples):
            try:
                request = _request(vlm, sample, options)
            except ImageError as error:
                skipped.append(Skipped(sample.name, str(error)))
                report("exact", index + 1, len(samples))
                continue
            found = observe(vlm, request)
            found.save(_file(folder, sample))
            references.append(
                Reference(
                    sample.name,
                    _question(sample, options),
                    found.answer,
                    len(found.ids),
                    sum(image.num_tokens for image in request.images),
                    confidence(found),
                    repetition(found),
                )
            )
            report("exact", index + 1, len(samples))
    return references, skipped


def _load(artifact: Artifact, options: VerifyOptions, settings: Settings) -> VLM:
    # Only the onnx engine has recipes, whichever engine the environment selects.
    return load(
        artifact.folder,
        engine="onnx",
        device="cpu",
        dtype="auto",
        threads=options.threads,
        settings=settings,
    )


def _file(folder: Path, sample: Sample) -> Path:
    return folder / f"{sample.name}.npz"


def _question(sample: Sample, options: VerifyOptions) -> str:
    message = user_message([sample.image], options.question or sample.question, options.task)
    return str(message.content[-1])


def _request(vlm: VLM, sample: Sample, options: VerifyOptions) -> Request:
    message = user_message([sample.image], _question(sample, options), options.task)
    # As users get it for tasks that read or locate: greedy, with the model's own penalties.
    greedy = replace(vlm.sampling, temperature=0.0, max_tokens=options.max_tokens)
    return vlm.prepare([message], ImageOptions(task=options.task, strips="off"), greedy)
