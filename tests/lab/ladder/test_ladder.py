"""`qwink bench ladder`, rungs of both kinds, on a tiny checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qwink.errors import OptionError, QwinkError
from qwink.lab.ladder import job
from qwink.lab.ladder.ladder import LadderPlan, climb
from qwink.lab.ladder.questions import workloads
from qwink.lab.ladder.rungs import Plain, cpu_rungs, gpu_rungs
from qwink.lab.pictures.gallery import choose, write
from qwink.runtime.models import find_artifact
from qwink.settings import Settings
from tests.conftest import RunQwink

SMALL = "--pictures", 3, "--max-tokens", 3, "--max-image-tokens", 300, "--threads", 1


def test_each_rung_adds_to_the_one_before() -> None:
    assert [rung.key for rung in cpu_rungs("fast", 4, 8)] == list("abcdefghi")
    assert [rung.key for rung in gpu_rungs(8)] == list("123456")


def test_from_the_plain_service_to_several_users(
    qwink: RunQwink, tiny_checkpoint: tuple[Path, Any], tmp_path: Path
) -> None:
    checkpoint, out = tiny_checkpoint[0], tmp_path / "ladder.json"
    ran = qwink(
        *("bench", "ladder", checkpoint, *SMALL, "--rungs", "a,f,h,i", "--users", 2),
        *("--out", out),
        home=tmp_path / "home",
    )
    assert ran.code == 0, ran.err
    result = json.loads(ran.out.splitlines()[-1])
    assert result == json.loads(out.read_text("utf-8"))
    plain, quantised, cached, together = result["rungs"]
    assert plain["gain"] is None
    assert plain["quality"] is None
    assert plain["times"]["load_ms"] > 0
    assert plain["times"]["image_tokens"] > quantised["times"]["image_tokens"] > 0
    assert quantised["before"] == plain["times"]
    assert quantised["quality"]["count"] == 3
    # The previous rung is run on the workload with repeated pictures, too.
    assert cached["workload"] == "mix"
    assert cached["before"]["count"] == cached["times"]["count"] == 4
    assert cached["step_quality"]["count"] == 4
    assert cached["quality"]["count"] == 3
    assert together["gain_over_first"] > 0
    assert result["left_out"] == {}
    assert result["facts"]["versions"]["transformers"]
    for rung in result["rungs"]:
        assert f"{rung['key']} {rung['name']}" in ran.err


def test_the_gpu_ladder_can_be_tried_on_the_cpu(
    qwink: RunQwink, tiny_checkpoint: tuple[Path, Any], tmp_path: Path
) -> None:
    ran = qwink(
        *("bench", "ladder", tiny_checkpoint[0], *SMALL, "--gpu", "--device", "cpu"),
        *("--rungs", "1,6"),
        home=tmp_path,
    )
    assert ran.code == 0, ran.err
    result = json.loads(ran.out.splitlines()[-1])
    assert [rung["key"] for rung in result["rungs"]] == ["1", "6"]
    assert result["facts"]["hardware"]["accelerator"] is None


def test_without_torch_the_other_rungs_run(
    tiny_checkpoint: tuple[Path, Any],
    tiny_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job, "find_spec", lambda name: None if name == "torch" else object())
    checkpoint = tiny_checkpoint[0]
    settings = Settings.from_environment({"QWINK_HOME": str(tiny_home)})
    artifact = find_artifact(checkpoint, "balanced", settings)
    questions = workloads(write(choose(2), tmp_path), (4096, 65_536), 64)
    rungs = tuple(rung for rung in cpu_rungs("balanced", 2, 2) if rung.key in "adfg")
    plan = LadderPlan(checkpoint, rungs, questions, {"balanced": artifact}, {}, 2, 1)
    result = climb(plan).measured
    assert [rung.key for rung in result.rungs] == ["f", "g"]
    assert set(result.left_out) == {"a", "d"}
    assert "[torch]" in result.left_out["a"]
    assert result.rungs[1].quality is not None


def test_a_plain_service_that_fails_says_why(tmp_path: Path) -> None:
    order = job.ServiceJob(str(tmp_path / "nothing"), "cpu", 1, Plain(), ())
    with pytest.raises(QwinkError, match="the plain service's process failed: "):
        list(job.run(order))


def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(OptionError, match="cannot use cuda:99"):
        job.accelerator("cuda:99")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--pictures", 51], "there are 1 to 50"),
        (["--rungs", "a,z"], "there are a,b,c,d,e,f,g,h,i"),
        (["--recipe", "exact"], "compares exact with another"),
        (["--gpu", "--users", 3], "--users is for the ladder on the CPU"),
        (["--device", "cuda"], "add --gpu"),
        (["--artifact", "fast"], "--artifact takes NAME=DIR"),
        (["--out", "nowhere/ladder.json"], "cannot be written"),
    ],
)
def test_wrong_usage(options: list[object], message: str, qwink: RunQwink, tiny_home: Path) -> None:
    ran = qwink("bench", "ladder", "--pictures", 1, *options)
    assert ran.code == 2
    assert message in ran.err


def test_artifacts_must_fit_the_checkpoint(
    qwink: RunQwink, tiny_checkpoint: tuple[Path, Any], tiny_home: Path
) -> None:
    folder = next((tiny_home / "artifacts").glob("tiny-*"))
    ran = qwink("bench", "ladder", "nano", "--pictures", 1, "--artifact", f"balanced={folder}")
    assert ran.code == 2
    assert "is not made from" in ran.err
    ran = qwink("bench", "ladder", folder, "--pictures", 1)
    assert ran.code == 2
    assert "is an artifact; the ladder starts from its checkpoint" in ran.err
