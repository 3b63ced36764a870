"""The ladder's workloads: each picture once, and a mix in which some pictures are repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from qwink.inputs.budget import TOKEN_PIXELS, choose_budget
from qwink.lab.pictures.gallery import BenchPicture

REPEATED = 0.3  # share of the mix whose picture was asked about before
RECENT = 3  # a repeat is about one of the last three pictures, as in conversations

# pictures: each once. mix: some are repeated. users: the mix, with concurrent users.
Workload = Literal["pictures", "mix", "users"]
Areas = tuple[int, int]  # least and most pixels of a resized picture


@dataclass(frozen=True, slots=True)
class Question:
    """A picture's path, a text, and limits of the resized picture.

    `full` are the checkpoint's limits within the cap of all services; `task` those of the task.
    """

    name: str  # unique
    path: str
    text: str
    full: Areas
    task: Areas
    answer: str | None = None


def workloads(
    pictures: Sequence[BenchPicture], limits: Areas, max_image_tokens: int
) -> dict[Workload, list[Question]]:
    """The questions. `limits` are the checkpoint's; `max_image_tokens` limits all services."""
    questions = _questions(pictures, limits, max_image_tokens)
    mixed = mix(questions, pictures)
    return {"pictures": questions, "mix": mixed, "users": mixed}


def _questions(
    pictures: Sequence[BenchPicture], limits: Areas, max_image_tokens: int
) -> list[Question]:
    most = min(limits[1], max_image_tokens * TOKEN_PIXELS)
    least = min(limits[0], most)
    found = []
    for picture in pictures:
        entry = picture.entry
        budget = choose_budget(entry.task, entry.question, limits=limits)
        task = min(budget.min_pixels, most), min(budget.max_pixels, most)
        found.append(
            Question(
                entry.name, str(picture.path), entry.question, (least, most), task, entry.answer
            )
        )
    return found


def mix(questions: Sequence[Question], pictures: Sequence[BenchPicture]) -> list[Question]:
    """The questions in order, with follow-up questions about recent pictures evenly among them.

    The share of follow-up questions is about `REPEATED`. The mix is the same each time.
    """
    rng, ratio = np.random.default_rng(0), REPEATED / (1 - REPEATED)
    stream: list[Question] = []
    fresh: list[int] = []  # without a follow-up question so far
    for index, question in enumerate(questions):
        stream.append(question)
        fresh.append(index)
        if int((index + 1) * ratio) > int(index * ratio):
            number = int(rng.choice(fresh[-RECENT:]))
            fresh.remove(number)
            stream.append(_follow_up(questions[number], pictures[number]))
    return stream


def _follow_up(question: Question, picture: BenchPicture) -> Question:
    return Question(
        f"{question.name}, again",
        question.path,
        picture.entry.follow_up,
        question.full,
        question.task,
    )
