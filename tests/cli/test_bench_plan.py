"""`qwink bench plan`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conftest import RunQwink

STAGES = Path(__file__).parents[2] / "benchmarks" / "results" / "stages-fast.json"


def test_a_plan_from_stages(qwink: RunQwink, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    lines = [
        {"at_s": 2 * number, "prompt_tokens": 220, "visual_tokens": 192, "answer_tokens": 16}
        | {"picture": f"p{number // 2}"}
        for number in range(40)
    ]
    trace.write_text("\n".join(map(json.dumps, lines)))
    ran = qwink(
        *("bench", "plan", STAGES, "--trace", trace, "--replicas", "1,2"),
        *("--target-p95", 1500, "--out", tmp_path / "plan.json"),
    )
    assert ran.code == 0, ran.err
    document = json.loads((tmp_path / "plan.json").read_text())
    assert document["kind"] == "plan"
    assert json.loads(ran.out.splitlines()[-1]) == document
    found = [(one["replicas"], one["routing"]) for one in document["predictions"]]
    assert found == [(1, "picture"), (1, "load"), (2, "picture"), (2, "load")]
    assert document["predictions"][0]["found_share"] == 1
    assert "replicas reach 1500 ms" in ran.err
    # Its times serve the next plan.
    again = qwink("bench", "plan", tmp_path / "plan.json", "--requests", 50, "--replicas", 3)
    assert again.code == 0, again.err


def test_wrong_options(qwink: RunQwink) -> None:
    for wrong, why in (
        ((), "--calibrate"),
        ((STAGES, "--routing", "luck"), "--routing"),
        ((STAGES, "--replicas", "5000"), "1000"),
    ):
        ran = qwink("bench", "plan", *wrong)
        assert ran.code == 2, (wrong, ran.err)
        assert why in ran.err
