"""The workloads: limits of the pictures' sizes, and repeated pictures."""

from __future__ import annotations

from pathlib import Path

import pytest

from qwink.inputs.budget import QWEN3_VL_LIMITS, TOKEN_PIXELS
from qwink.lab.ladder.questions import RECENT, workloads
from qwink.lab.pictures.gallery import BenchPicture, choose


def pictures(count: int) -> list[BenchPicture]:
    """As `write` returns them, without drawing."""
    return [BenchPicture(entry, Path(entry.name)) for entry in choose(count)]


def test_the_task_needs_at_most_what_the_plain_service_takes() -> None:
    for cap in (1280, 300):
        for question in workloads(pictures(50), QWEN3_VL_LIMITS, cap)["pictures"]:
            assert question.full == (65_536, cap * TOKEN_PIXELS)
            assert question.task[0] <= question.task[1] <= question.full[1]


def test_tasks_differ_in_what_they_need() -> None:
    asked = workloads(pictures(50), QWEN3_VL_LIMITS, 1280)["pictures"]
    assert len({question.task for question in asked}) == 5


def test_a_small_models_limit_is_below_the_cap() -> None:
    (question,) = workloads(pictures(1), (4096, 50_176), 1280)["pictures"]
    assert question.full == question.task == (4096, 50_176)


@pytest.mark.parametrize("count", [9, 20, 50])
def test_three_in_ten_come_again_soon(count: int) -> None:
    work = workloads(pictures(count), QWEN3_VL_LIMITS, 1280)
    mix = work["mix"]
    assert work["users"] == mix == workloads(pictures(count), QWEN3_VL_LIMITS, 1280)["mix"]
    assert len({question.name for question in mix}) == len(mix)
    again = [index for index, question in enumerate(mix) if question.name.endswith("again")]
    assert abs(len(again) / len(mix) - 0.3) < 0.06
    assert [question for question in mix if "again" not in question.name] == work["pictures"]
    for index in again:
        earlier = [question for question in mix[:index] if question.path == mix[index].path]
        assert len(earlier) == 1
        assert earlier[0].task == mix[index].task
        assert earlier[0].text != mix[index].text
        assert index - mix.index(earlier[0]) <= 3 * RECENT
