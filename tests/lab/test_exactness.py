"""The measurement of exactness, with few requests to nano."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qwink.lab.exactness import SHAPES, STYLES, answers, main, requests, same
from qwink.native import capabilities
from qwink.runtime.models import load


def test_every_combination_occurs() -> None:
    asked = requests(len(SHAPES) * len(STYLES), 8)
    assert len({str({k: v for k, v in one.items() if k != "seed"}) for _, one in asked}) > 20


@pytest.mark.skipif(capabilities().kernels == "onnxruntime", reason="no kernels for this processor")
def test_nano_is_exact(tmp_path: Path) -> None:
    out = tmp_path / "exactness.json"
    main(["nano", "--requests", "24", "--tokens", "12", "--out", str(out)])
    (found,) = json.loads(out.read_text())["models"]
    assert [way["num_different"] for way in found["ways"]] == [0, 0, 0]
    assert found["greedy"] + found["drawn"] == found["requests"] == 24
    assert found["ways"][0]["accepted"] == 0


def test_a_difference_is_seen() -> None:
    with load("nano") as vlm:
        one, two = answers(vlm, requests(3, 4)[1:], (2,))
    assert same(one, one)
    assert not same(one, two)
    result, logprobs = one
    assert not same(one, (result, logprobs[:-1])), "log-probabilities count"
