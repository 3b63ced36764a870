"""What the ladder's services are asked: each picture once, then a mix in which some come again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from qwink.inputs.budget import TOKEN_PIXELS, choose_budget
from qwink.lab.pictures.gallery import BenchPicture

REPEATED = 0.3  # share of the mix whose picture was there before
RECENT = 3  # pictures back that a repeat reaches, as people ask on about what they have just seen

# pictures: each once. mix: some come again. users: the mix, asked by several people at once.
Workload = Literal["pictures", "mix", "users"]
Areas = tuple[int, int]  # least and most pixels of a resized picture


@dataclass(frozen=True, slots=True)
class Question:
    """A picture's path and a text, and how large the picture may become.

    `full` is what the checkpoint takes, below the plain service's cap; `task` what the task needs.
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
    """All that is asked. `limits` are the checkpoint's; the cap holds for every service."""
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
        budget = choose_budget(picture.task, picture.question, limits=limits)
        task = min(budget.min_pixels, most), min(budget.max_pixels, most)
        found.append(
            Question(
                picture.name,
                str(picture.path),
                picture.question,
                (least, most),
                task,
                picture.answer,
            )
        )
    return found


def mix(questions: Sequence[Question], pictures: Sequence[BenchPicture]) -> list[Question]:
    """The questions in order, and among them, evenly spread, second ones about recent pictures.

    About `REPEATED` of all are such; the same mix each time.
    """
    rng, ratio = np.random.default_rng(0), REPEATED / (1 - REPEATED)
    stream: list[Question] = []
    fresh: list[int] = []  # asked about once
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
        picture.follow_up,
        question.full,
        question.task,
    )
