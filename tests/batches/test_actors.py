"""Batches on a real Ray of this machine: the same rows as without, whatever dies."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qwink.batches.actors import Cluster
from qwink.batches.batch import batch
from qwink.batches.rows import Row
from qwink.errors import ModelNotFound, OptionError
from qwink.runtime.vlm import VLM
from qwink.settings import Settings
from tests.batches.conftest import COLOURS, draw

QUESTION = "Describe this picture."
# Ray's own code uses what it calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
slow = pytest.mark.skipif(not os.environ.get("QWINK_TEST_RAY"), reason="set QWINK_TEST_RAY")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def ray(home: Path) -> Iterator[Any]:
    """Ray with two processors, which all tests share."""
    import ray

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100 << 20,
    )
    yield ray
    ray.shutdown()


def cluster(home: Path, actors: int = 2, **load: Any) -> Cluster:
    settings = Settings(home=home, hub_cache=Path("nowhere"))
    return Cluster("local", actors, {"threads": 1, "settings": settings, **load})


def by_id(rows: list[Row]) -> dict[str, tuple[Any, ...]]:
    """What of the rows does not depend on time; each id once."""
    found = {row.id: (row.answer, row.error, row.skipped, row.sha256, row.question) for row in rows}
    assert len(found) == len(rows)
    return found


def actors() -> list[int]:
    """The process ids of the actors, which Ray names."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # a process that has ended
            if b"MapBatches(Answers" in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def test_the_rows_are_those_of_one_process(
    ray: Any, home: Path, nano: VLM, folder: Path, tmp_path: Path
) -> None:
    (folder / "same.png").write_bytes((folder / "0.png").read_bytes())
    (folder / "broken.png").write_bytes(b"no picture")
    draw(folder / "blank.png", "white")
    items = [str(folder), {"image": str(folder / "1.png"), "question": "What colour is it?"}]
    local = list(batch(items, QUESTION, model=nano, skip_blank=True))
    out = tmp_path / "rows.jsonl"
    found = list(batch(items, QUESTION, model="nano", ray=cluster(home), skip_blank=True, out=out))
    assert by_id(found) == by_id(local)
    same = [row.same_as for row in found if row.same_as]
    assert len(same) == 1
    assert "0.png" in same[0] or "same.png" in same[0]

    # The same file is continued by one process, and by actors.
    draw(folder / "new.png", "red")
    more = list(batch(items, QUESTION, model="nano", ray=cluster(home), skip_blank=True, out=out))
    assert [Path(row.id).name for row in more] == ["new.png"]
    assert not list(batch(items, QUESTION, model=nano, skip_blank=True, out=out))
    again = list(
        batch(items, QUESTION, model="nano", ray=cluster(home, 1), out=out, where="errors",
              skip_blank=True)
    )  # fmt: skip
    assert [Path(row.id).name for row in again] == ["broken.png"]


@slow
def test_an_actor_that_dies_loses_nothing(ray: Any, home: Path, folder: Path) -> None:
    for number in range(60):
        draw(folder / f"more{number}.png", COLOURS[number % 6], 70 + number)
    killed = 0
    rows: list[Row] = []
    for row in batch([str(folder)], QUESTION, model="nano", ray=cluster(home)):
        rows.append(row)
        if len(rows) in (3, 30):
            os.kill(actors()[0], signal.SIGKILL)
            killed += 1
    assert killed == 2
    assert len(by_id(rows)) == 66
    assert all(row.answer for row in rows)


def test_what_ray_cannot_do_is_refused(ray: Any, home: Path, nano: VLM, folder: Path) -> None:
    for model, options, why in (
        (nano, {}, "name it"),
        ("nano", {"near_duplicates": 3}, "near duplicates"),
    ):
        with pytest.raises(OptionError, match=why):
            batch([str(folder)], model=model, ray=cluster(home), **options)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="ray_actors"):
        Cluster("local", 0)
    with pytest.raises(ModelNotFound, match="no/such"):
        batch([str(folder)], model="no/such", ray=cluster(home))
    with pytest.raises(OptionError, match="needs 64 processors"):
        batch([str(folder)], model="nano", ray=Cluster("local", None, {"threads": 64}))


def command(home: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "qwink", "batch", "-q", QUESTION, *arguments],
        env={**os.environ, "QWINK_HOME": str(home)},
        stderr=subprocess.PIPE,
        text=True,
    )


@slow
def test_a_driver_that_is_killed_goes_on(home: Path, folder: Path, tmp_path: Path) -> None:
    for number in range(200):
        draw(folder / f"more{number}.png", COLOURS[number % 6], 70 + number)
    out = tmp_path / "rows.jsonl"
    arguments = (str(folder), "--out", str(out), "--ray", "local", "--ray-actors", "2")
    for enough in (5, 60):
        process = command(home, *arguments)
        deadline = time.monotonic() + 120
        while not out.exists() or out.read_bytes().count(b"\n") < enough:
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.kill()
        process.communicate()
    process = command(home, *arguments)
    _, said = process.communicate(timeout=240)
    assert process.returncode == 0, said
    ids = [json.loads(line)["id"] for line in out.read_text().splitlines()]
    assert len(ids) == len(set(ids)) == 206


@slow
def test_nobody_at_the_address(home: Path, folder: Path) -> None:
    process = command(home, str(folder), "--ray", "127.0.0.1:1")
    _, said = process.communicate(timeout=240)
    assert process.returncode == 2
    assert "no Ray cluster answers" in said
