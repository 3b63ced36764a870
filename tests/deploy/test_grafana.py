"""The dashboard asks for metrics that a real server has, in queries that Prometheus answers."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.prometheus import prometheus
from tests.server.process import SMALL, Server, image, starter, user

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "qwink.json"
PANELS: list[dict[str, Any]] = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
# The test's few answers draft nothing.
MAY_BE_EMPTY = {"Drafts"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("grafana")
    servers = starter(Path("nano"), folder / "home", folder)
    yield next(servers)("--speculate", "off").wait_ready()
    next(servers, None)


def ask_some(server: Server, first: int) -> None:
    """Two pictures, the second one twice."""
    for number in (first, first + 1, first + 1):
        asked = {"model": "nano", "messages": [user(image(number), "What is it?")], **SMALL}
        server.http.post(
            f"{server.address}/v1/chat/completions", json=asked | {"max_tokens": 8}
        ).raise_for_status()


def expressions(panel: dict[str, Any]) -> list[str]:
    """As Grafana sends them, for all servers."""
    return [
        target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")
        for target in panel["targets"]
    ]


def test_panels_have_titles_and_their_own_places() -> None:
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in PANELS]
    assert len(set(places)) == len(PANELS)


def test_every_metric_is_one_of_a_real_server(server: Server) -> None:
    ask_some(server, 0)
    text = server.http.get(f"{server.address}/metrics").text
    there = set(re.findall(r"^(qwink_\w+)", text, re.M))
    asked = set(re.findall(r"qwink_\w+", DASHBOARD.read_text("utf-8")))
    assert len(asked) > 15
    assert asked <= there, asked - there
    # No metric is left out; histograms appear by one of their series.
    names = {re.sub(r"_(bucket|sum|count|created|total)$", "", name) for name in there}
    assert names == {re.sub(r"_(bucket|sum|count|total)$", "", name) for name in asked}


def test_prometheus_answers_every_query(server: Server, tmp_path: Path) -> None:
    with prometheus(server.address.removeprefix("http://"), tmp_path) as found:
        found.wait_for("qwink_engine_up == 1")
        for panel in PANELS:  # rates need an increase between two scrapes
            for expression in expressions(panel):
                found.query(expression)
        ask_some(server, 10)
        found.wait_for('rate(qwink_requests_total{route="/v1/chat/completions"}[1m]) > 0')
        ask_some(server, 20)
        time.sleep(1)  # two scrapes more
        for panel in PANELS:
            for expression in expressions(panel):
                values = [float(sample["value"][1]) for sample in found.query(expression)]
                if panel["title"] not in MAY_BE_EMPTY:
                    assert values, (panel["title"], expression)
                    assert any(value == value for value in values), panel["title"]  # not NaN
