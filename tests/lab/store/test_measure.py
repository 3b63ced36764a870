"""The measurements of the shared store, in small: with nano, one fault, and one picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qwink.lab.store import compression, faults, machines
from qwink.types import EncodedImage, Grid
from tests import stores


@pytest.fixture(scope="module", autouse=True)
def _needs_redis(tmp_path_factory: pytest.TempPathFactory) -> None:
    stores.start(tmp_path_factory.mktemp("redis")).kill()


def test_a_stopped_server_changes_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = next(fault for fault in faults.FAULTS if fault[0].startswith("stopped"))
    monkeypatch.setattr(faults, "FAULTS", (stopped,))
    (delay,) = faults.measure(4, tmp_path, 1)
    assert delay.equal_answers == delay.answers == 4
    assert sum(delay.reads.values()) == 4 + faults._BEFORE
    assert delay.reads.get("late", 0) + delay.reads.get("timeout", 0) >= 1


def test_a_second_machine_is_measured(tmp_path: Path) -> None:
    (size,) = machines.measure("nano", [64], [1], 1, tmp_path)
    assert size.image_tokens == 4
    assert size.entry_bytes > 0
    assert size.encoded.encode_ms > 0
    assert size.fetched.text == size.over_network.text == size.encoded.text


def test_codecs_give_back_what_they_were_given() -> None:
    values = np.random.default_rng(0).normal(size=(2, 64, 32)).astype(np.float32)
    image = EncodedImage(values[0], values[1:], Grid(1, 16, 16), "a")
    found = compression.measure([image])
    assert {one.split for one in found} == {False, True}
    assert all(0.5 < one.size < 1.1 for one in found)
