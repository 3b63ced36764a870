"""`qwink bench load` with a real server process, and the summary of its figures."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import PIL.Image
import pytest

from qwink.errors import OptionError
from qwink.lab.cost.services import services
from qwink.lab.load.client import Reply
from qwink.lab.load.measure import api_root, summarise_level
from qwink.lab.record import Record
from tests.conftest import RunQwink
from tests.server.process import Server, starter

SHORT = ("--concurrency", "2,1", "--rounds", 2, "--max-tokens", 4)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "keys.txt"
    path.write_text("first-key\nsecond-key\n")
    return path


@pytest.fixture(scope="module")
def server(
    tiny_checkpoint: tuple[Path, Any],
    tiny_home: Path,
    keys: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    servers = starter(tiny_checkpoint[0], tiny_home, tmp_path_factory.mktemp("server"))
    yield next(servers)("--api-key-file", keys).wait_ready()
    next(servers, None)


def num_chats(server: Server) -> int:
    return sum(line["route"] == "/v1/chat/completions" for line in server.requests())


def test_load(server: Server, keys: Path, qwink: RunQwink, picture: Path, tmp_path: Path) -> None:
    out, plot = tmp_path / "load.json", tmp_path / "plot"
    before = num_chats(server)
    ran = qwink(
        *("bench", "load", server.address, picture, *SHORT, "--price-per-hour", 1),
        *("--plot", plot, "--out", out, "--api-key-file", keys),
        *("--repeats", 0.5, "--extra", '{"seed": 3}'),
    )
    assert ran.code == 0, ran.err
    document = json.loads(ran.out.splitlines()[-1])
    assert json.loads(out.read_text("utf-8")) == document
    assert (document["kind"], document["model"]) == ("load", "tiny")
    assert document["picture_size"] == [160, 120]
    assert [level["concurrency"] for level in document["levels"]] == [1, 2]
    for level in document["levels"]:
        assert level["num_requests"] == 2 * level["concurrency"]
        assert level["errors"] == {}
        assert level["first_token_ms"]["count"] == level["num_requests"]
        assert level["first_token_ms"]["max"] <= level["total_ms"]["max"]
        assert level["total_ms"]["max"] <= level["duration_s"] * 1e3 + 1
        expected = level["num_requests"] / level["duration_s"]
        assert level["requests_per_s"] == pytest.approx(expected, rel=0.01)
    assert num_chats(server) - before == 1 + 2 + 4
    with PIL.Image.open(f"{plot}.png") as drawn:
        assert drawn.size[0] > 600
    assert "users at once" in Path(f"{plot}.svg").read_text("utf-8")
    (bill,) = document["cost"].values()
    assert bill["service"]["cold_extra_ms"] == 0
    for words in ("per token", "images/hour", "no cold starts: add them"):
        assert words in ran.err


def test_keys_are_needed_and_read_from_the_environment(server: Server, qwink: RunQwink) -> None:
    ran = qwink("bench", "load", server.address, *SHORT)
    assert (ran.code, ran.out) == (1, "")
    assert "401" in ran.err
    ran = qwink("bench", "load", server.address, *SHORT, QWINK_API_KEYS="second-key,other")
    assert ran.code == 0, ran.err
    assert "second-key" not in ran.out + ran.err


def test_a_first_request_that_fails_ends_it(server: Server, qwink: RunQwink) -> None:
    ran = qwink(
        *("bench", "load", server.address, *SHORT, "--extra", '{"n": 9}'),
        QWINK_API_KEYS="first-key",
    )
    assert (ran.code, ran.out) == (1, "")
    assert "the first request failed: HTTP 400" in ran.err


def test_an_address_without_a_server(qwink: RunQwink) -> None:
    ran = qwink("bench", "load", "http://127.0.0.1:9")
    assert (ran.code, ran.out) == (1, "")
    assert "is a server running there?" in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("localhost:8000",), "http://"),
        (("http://x", "--concurrency", "0"), "--concurrency"),
        (("http://x", "--extra", "[1]"), "--extra"),
        (("http://x", "--extra", "{"), "--extra"),
        (("http://x", "--plot", "no/such/folder/plot"), "folder"),
        (("http://x", "--repeats", "2"), "--repeats"),
    ],
)
def test_wrong_options(qwink: RunQwink, arguments: tuple[str, ...], word: str) -> None:
    ran = qwink("bench", "load", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert word in ran.err


def test_plots_without_matplotlib_are_refused(tmp_path: Path) -> None:
    # matplotlib is hidden from `find_spec`.
    code = (
        "import sys, importlib.util as util\n"
        "find = util.find_spec\n"
        "util.find_spec = lambda name: None if name == 'matplotlib' else find(name)\n"
        "from qwink.cli import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", code, "bench", "load", "http://127.0.0.1:9", "--plot", "plot"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "pip install " in ran.stderr
    assert "[bench]" in ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_address() -> None:
    for url in ("http://x", "http://x/", "http://x/v1", "http://x/v1/"):
        assert api_root(url) == "http://x/v1/"
    assert api_root("http://x/path") == "http://x/path/v1/"


def good(first: float, gaps: tuple[float, ...]) -> Reply:
    total, tokens = first + sum(gaps), len(gaps) + 1
    return Reply(None, total, first, sum(gaps) / len(gaps), gaps, tokens)


def test_failures_are_counted_apart() -> None:
    replies = [
        good(100.0, (10.0, 20.0)),
        Reply("HTTP 429"),
        good(300.0, (50.0,)),
        Reply("timeout"),
        Reply("HTTP 429"),
    ]
    level = summarise_level(2, replies, 2.0)
    assert (level.num_requests, level.errors) == (5, {"HTTP 429": 2, "timeout": 1})
    assert (level.requests_per_s, level.tokens_per_s) == (1, 2.5)
    assert level.first_token_ms is not None
    assert level.token_ms is not None
    assert level.gap_ms is not None
    assert (level.first_token_ms.median, level.first_token_ms.count) == (200, 2)
    assert level.token_ms.median == 32.5
    assert (level.gap_ms.max, level.gap_ms.count) == (50, 3)


def test_a_level_without_answers_has_no_figures() -> None:
    level = summarise_level(1, [Reply("timeout")], 1.0)
    assert (level.first_token_ms, level.token_ms, level.total_ms) == (None, None, None)
    assert level.requests_per_s == 0


def level_of(concurrency: int, rate: float, total: float | None) -> dict[str, Any]:
    summary = None if total is None else {"median": total}
    return {"concurrency": concurrency, "requests_per_s": rate, "total_ms": summary}


def test_the_best_level_is_priced() -> None:
    levels = [level_of(4, 3.0, 900.0), level_of(1, 2.0, 500.0), level_of(8, 0.0, None)]
    result = Record("load", None, {"levels": levels})
    ((label, service),) = services(result, cold_extra_ms=7.0).items()
    assert label == "4 at once"
    assert (service.request_ms, service.images_per_hour) == (500, 10_800)
    assert service.cold_extra_ms == 7
    with pytest.raises(OptionError, match="--max-tokens"):
        services(result, answer_tokens=5)


def test_a_load_without_answers_has_no_price() -> None:
    with pytest.raises(OptionError, match="no request"):
        services(Record("load", None, {"levels": [level_of(1, 0.0, None)]}))
