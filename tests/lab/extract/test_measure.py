"""Known answers are replayed whole, with the built-in model, and each arm does what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qwink.errors import OptionError
from qwink.lab.extract.corpus import KINDS, answers
from qwink.lab.extract.measure import ExtractPlan, measure_extract
from qwink.lab.extract.schemas import infer
from qwink.lab.record import parse, write
from qwink.native import capabilities
from qwink.runtime.costs import StepCosts
from qwink.runtime.engines import EngineOptions
from qwink.runtime.models import find_artifact, open_model
from qwink.runtime.requests import Model
from qwink.settings import Settings

needs_kernels = pytest.mark.skipif(
    capabilities().kernels == "onnxruntime", reason="no kernels for this processor"
)


@pytest.fixture(scope="module")
def nano(tmp_path_factory: pytest.TempPathFactory) -> Model:
    settings = Settings.from_environment({"QWINK_HOME": str(tmp_path_factory.mktemp("home"))})
    artifact = find_artifact("nano", None, settings)
    return open_model(artifact.folder, EngineOptions(engine="onnx", threads=1))


@needs_kernels
def test_arms(nano: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two records of one layout, so that the second one has an earlier answer."""
    monkeypatch.setattr(StepCosts, "extra", lambda *_: 0.0)
    known = [one for one in answers("json") if one.name.startswith("fuel receipt")][:2]
    others = {kind: answers(kind, 1) for kind in ("text", "random")}
    monkeypatch.setattr(
        "qwink.lab.extract.measure.answers", lambda kind, _: others.get(kind, known)
    )
    result = measure_extract(ExtractPlan(nano, "balanced", 1, image_tokens=16)).measured
    rows = {(row.kind, row.arm): row for row in result.arms}
    assert set(rows) == {
        *(("json", arm) for arm in ("off", "forced", "drafts", "both")),
        *((kind, arm) for kind in ("text", "random") for arm in ("off", "drafts")),
    }
    off = rows["json", "off"]
    assert off.tokens_per_step == 1
    assert off.accepted == off.rejected == 0
    assert off.generate_gain == off.total_gain == 1
    assert rows["json", "forced"].tokens_per_step > 1.2
    assert rows["json", "forced"].accepted == 0
    assert rows["json", "drafts"].tokens_per_step > 1.2
    assert rows["json", "drafts"].accepted > 20
    assert rows["json", "both"].steps < rows["json", "forced"].steps
    assert rows["random", "off"].tokens == rows["random", "drafts"].tokens
    path = tmp_path / "extract.json"
    write(path, measure_extract(
        ExtractPlan(nano, "balanced", 1, ("off",), {"json": 0, "random": 0}, 16)
    ).document())  # fmt: skip
    read = parse(json.loads(path.read_text("utf-8")))
    assert read.kind == "extract"
    assert [row["kind"] for row in read.measured["arms"]] == ["text"]


def test_arms_begin_with_off(nano: Model) -> None:
    with pytest.raises(OptionError, match="must be off"):
        measure_extract(ExtractPlan(nano, "balanced", 1, ("drafts",)))


def test_answers_are_always_the_same() -> None:
    assert [len(answers(kind)) for kind in KINDS] == [48, 12, 12]
    for kind in KINDS:
        assert answers(kind) == answers(kind)
        assert len({one.name for one in answers(kind)}) == len(answers(kind))
        assert answers(kind, 3) == answers(kind)[:3]
    assert len({one.question for one in answers("json")}) == 8
    for one in answers("json"):
        assert one.text is not None
        record = json.loads(one.text)
        assert json.dumps(record, separators=(",", ":"), ensure_ascii=False) == one.text
        assert one.schema is not None
        assert list(one.schema["properties"]) == list(record)
    assert len({one.text for one in answers("text")}) == 12
    assert all(one.text and len(one.text) > 400 for one in answers("text"))


def test_schemas() -> None:
    assert infer([1, 2.5]) == {"type": "number"}
    assert infer([None, "a"]) == {"type": ["null", "string"]}
    assert infer([[], [True]]) == {"type": "array", "items": {"type": "boolean"}}
    assert infer([{"b": 1, "a": []}]) == {
        "type": "object",
        "properties": {"b": {"type": "integer"}, "a": {"type": "array"}},
        "required": ["b", "a"],
        "additionalProperties": False,
    }
