"""Tables of hand-written pages are made from the results."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from qwink.export.recipe import RECIPES
from scripts.make_tables import ROOT, TABLES, fill
from scripts.performance.layout import Results
from scripts.tables import guide, readme
from tests.scripts.test_make_performance import stages_result

RESULTS = Results(ROOT / "benchmarks" / "results")


@pytest.mark.parametrize("page", TABLES)
def test_each_table_has_one_place(page: str) -> None:
    places = re.findall(r"<!-- table (\w+) -->", (ROOT / page).read_text("utf-8"))
    assert sorted(places) == sorted(TABLES[page])


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """A copy of what was measured, to be changed; without stages."""
    for path in RESULTS.folder.glob("*.json"):
        if not path.name.startswith("stages"):
            shutil.copy(path, tmp_path)
    return Results(tmp_path)


def test_a_new_figure_reaches_the_pages(results: Results) -> None:
    path = results.folder / "speed.json"
    speed = json.loads(path.read_text())
    speed["contenders"]["fast"]["first_token_ms"]["median"] = 4321.0
    speed["times_faster_than"]["transformers-bfloat16"]["fast"]["first_token_ms"] = 0.37
    path.write_text(json.dumps(speed))
    path = results.folder / "peers.json"
    peers = json.loads(path.read_text())
    peers["contenders"]["transformers-bf16"]["first_token_ms"]["median"] = 4321.0
    peers["times_faster"]["fast"]["transformers-bf16"]["first_token_ms"]["median"] = 0.37
    path.write_text(json.dumps(peers))
    for language in (readme.ENGLISH, readme.CHINESE):
        assert "| Transformers, bf16 | 4.32 s, **0.37×** |" in language.speed(results)
    assert "| `fast` | 4321 | 0.37 |" in guide.recipes(results)
    before = (ROOT / "README.md").read_text("utf-8")
    after = fill(before, TABLES["README.md"], results)
    assert after != before
    assert fill(after, TABLES["README.md"], results) == after


def test_recipes_are_all_there(results: Results) -> None:
    rows = guide.recipes(results).splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == list(RECIPES)
    assert "| — |" in rows[0]  # exact was not timed


def test_stages_and_threads(results: Results) -> None:
    for make in (guide.sizes, guide.threads):
        assert "qwink bench stages" in make(results)  # not measured so far
    nano, real = stages_result(), stages_result(encode_ms=700.0)
    real["model"], real["recipe"] = "standin", "fast"
    (results.folder / "stages-nano.json").write_text(json.dumps(nano))
    assert "| nano," in guide.sizes(results)
    (results.folder / "stages-fast.json").write_text(json.dumps(real))
    sizes, threads = guide.sizes(results), guide.threads(results)
    assert "nano" not in sizes + threads
    last = real["runs"][-1]
    assert len(sizes.splitlines()) == 2 + len(last["sizes"])
    assert len(threads.splitlines()) == 2 + len(real["runs"])
    assert f"| standin, `fast` | {last['sizes'][0]['size']} |" in sizes
    assert "| 700 |" in sizes


@pytest.mark.parametrize(
    "make",
    [readme.ENGLISH.speed, readme.CHINESE.more, guide.letters, guide.recipes, guide.threads],
)
def test_without_results_tables_have_no_figures(
    make: Callable[[Results], str], tmp_path: Path
) -> None:
    assert not re.search(r"\d\.\d", make(Results(tmp_path)))


def test_tasks_are_those_of_the_code() -> None:
    rows = guide.tasks(RESULTS).splitlines()[2:]
    assert "| `frame` | 49 | 49 | 224×224 |" in rows
    assert len(rows) == 5
