"""The plain services answer as qwink's exact recipe does, however pictures are prepared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from qwink.export.build import export
from qwink.export.recipe import get_recipe
from qwink.lab.ladder import onnx_service
from qwink.lab.ladder.job import ServiceJob
from qwink.lab.ladder.questions import Question, workloads
from qwink.lab.ladder.rungs import Ours, Plain
from qwink.lab.ladder.torch_service import TorchService
from qwink.lab.pictures.catalogue import CATALOGUE
from qwink.lab.pictures.gallery import write
from qwink.runtime.models import find_folder
from qwink.settings import Settings

AREAS = 65_536, 131_072
PLAIN = Plain("qwink", max_tokens=6)


@pytest.fixture
def questions(picture: Path) -> list[Question]:
    texts = "What is the total?", "Describe the picture in detail."
    return [Question(text, str(picture), text, AREAS, (4096, 16_384)) for text in texts]


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield


def answers(folder: Path, options: Plain, questions: list[Question]) -> list[dict[str, Any]]:
    return list(TorchService(str(folder), "cpu", options).answer(questions))


def test_a_job_survives_the_way_to_its_process(questions: list[Question]) -> None:
    job = ServiceJob("folder", "cpu", 2, PLAIN, tuple(questions))
    told = ServiceJob.from_json(job.to_json())
    assert told.service == PLAIN
    assert [question.text for question in told.questions] == [q.text for q in questions]


def test_answers_are_those_of_the_exact_recipe(tmp_path: Path) -> None:
    # nano: a random model would choose special tokens, which only qwink forbids.
    nano = find_folder("nano", Settings.from_environment({"QWINK_HOME": str(tmp_path)}))
    pictures = write([entry for entry in CATALOGUE if entry.name in ("line", "notice")], tmp_path)
    asked = workloads(pictures, (4096, 50_176), 1280)["pictures"]
    artifact = export(nano, tmp_path / "exact", get_recipe("exact"))
    options = Ours("exact", 16)
    with onnx_service.running(artifact, options, 1) as vlm:
        ours = onnx_service.answer_all(vlm, asked, options.max_tokens)
    plain = [answers(nano, replace(PLAIN, max_tokens=16), [question])[0] for question in asked]
    for own, other in zip(ours, plain, strict=True):
        assert other["tokens"] == list(own.tokens)
        assert other["text"] == own.text
        assert other["image_tokens"] == own.image_tokens
        assert np.array_equal(other["image"], own.image)
        # qwink keeps encoded images as float16.
        np.testing.assert_allclose(other["logits"], own.logits, atol=0.05)
    assert plain[0]["text"].startswith("Gate ")


@pytest.mark.parametrize("prepare", ["processor", "hand"])
def test_other_preparations_give_nearly_the_same_picture(
    prepare: Any, tiny_checkpoint: tuple[Path, Any], questions: list[Question]
) -> None:
    options = replace(PLAIN, max_tokens=1)
    (ours,) = answers(tiny_checkpoint[0], options, questions[:1])
    (plain,) = answers(tiny_checkpoint[0], replace(options, prepare=prepare), questions[:1])
    assert plain["image"].shape == ours["image"].shape == (224, 320, 3)
    assert np.abs(plain["image"].astype(int) - ours["image"]).mean() < 8  # Lanczos, of noise
    assert plain["load_ms"] > 0
    assert plain["total_ms"] >= plain["first_token_ms"] >= plain["prepare_ms"] > 0


def test_a_batch_answers_as_alone(
    tiny_checkpoint: tuple[Path, Any], questions: list[Question]
) -> None:
    folder = tiny_checkpoint[0]
    together = answers(folder, replace(PLAIN, batch=2), questions)
    for answer, question in zip(together, questions, strict=True):
        (alone,) = answers(folder, PLAIN, [question])
        assert answer["tokens"] == alone["tokens"]
        assert answer["per_answer_ms"] == answer["total_ms"] / 2


def test_the_longest_side_is_limited(
    tiny_checkpoint: tuple[Path, Any], questions: list[Question]
) -> None:
    question = replace(questions[0], full=(1024, 65_536))
    options = replace(PLAIN, prepare="hand", longest_side=64, max_tokens=1)
    (answer,) = answers(tiny_checkpoint[0], options, [question])
    assert answer["image"].shape == (64, 64, 3)  # 64×48, in whole tokens
