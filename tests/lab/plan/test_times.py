"""Service times: curves, and what is read from results."""

from __future__ import annotations

from pathlib import Path

import pytest

from qwink.errors import OptionError
from qwink.lab.plan.times import Curve, of_record, parse
from qwink.lab.record import RESULTS, Record, read


def test_a_curve_is_straight_between_and_beyond_its_points() -> None:
    curve = Curve(((10.0, 1.0), (20.0, 2.0), (40.0, 6.0)))
    assert [curve(size) for size in (5, 10, 15, 30, 50)] == pytest.approx([0.5, 1, 1.5, 4, 8])
    assert curve(-10) == 0
    assert Curve(((10.0, 1.0),))(99) == 1


def test_times_of_a_result_of_stages() -> None:
    record = read(Path(__file__).parents[3] / RESULTS / "stages-fast.json")
    times = of_record(record)
    row = record.measured["runs"][-1]["sizes"][0]
    assert times.encode(row["image_tokens"]) == row["stages_ms"]["encode"]["median"] / 1e3
    assert times.prefill(row["prompt_tokens"]) == row["stages_ms"]["prefill"]["median"] / 1e3
    assert times.step(1) < times.step(8) == pytest.approx(1.5 * times.step(1))
    assert times.prefill_from(100, 50) >= times.prefill(50)
    assert parse(times.document()) == times
    assert of_record(Record("plan", None, {"times": times.document()})) == times


def test_another_result_is_refused() -> None:
    with pytest.raises(OptionError, match="bench stages"):
        of_record(Record("cost", None, {"bills": {}}))
    with pytest.raises(OptionError, match="calibrate again"):
        parse({"model": "x"})
