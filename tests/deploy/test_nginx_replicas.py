"""Two servers behind a real nginx that keeps requests about a picture on one of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest
from playwright.sync_api import sync_playwright

from tests.deploy.nginx import proxy, replicas_example
from tests.page.visit import FLAGS, Visit, chromium
from tests.server.process import Serve, Server, ask, data_url, png, starter, user


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    home = tmp_path_factory.mktemp("home")
    yield from starter(Path("nano"), home, tmp_path_factory.mktemp("logs"))


@pytest.fixture(scope="module")
def servers(serve: Serve) -> list[Server]:
    started = [serve().wait_ready() for _ in range(2)]
    for server in started:
        server.model = "nano"
    return started


@pytest.fixture(scope="module")
def address(servers: list[Server], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    text = replicas_example(*(server.address for server in servers))
    with proxy("", tmp_path_factory.mktemp("nginx"), text) as address:
        yield address


def encoded(server: Server) -> float:
    return server.metric('qwink_stage_seconds_count{stage="encode"}')


def test_second_questions_find_their_pictures(servers: list[Server], address: str) -> None:
    before = [encoded(server) for server in servers]
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none") as client:
        for _ in range(2):
            for seed in range(12):
                content = png(seed)
                hint = f"sha256:{hashlib.sha256(content).hexdigest()}"
                part = {"type": "image_url", "image_url": {"url": data_url(content)}}
                headers = {"X-Qwink-Picture": hint}
                ask(client, user(part, "What is it?"), model="nano", extra_headers=headers)
    counts = [encoded(server) - count for server, count in zip(servers, before, strict=True)]
    assert sum(counts) == 12  # each picture once
    assert min(counts) > 0


def test_the_page_uploads_and_asks_on_one_server(servers: list[Server], address: str) -> None:
    """Three pictures, of which each alone might belong to another server."""
    before = [server.metric('qwink_requests_total{route="/v1/images"') for server in servers]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        visit = Visit(browser.new_page(), address).open().ready()
        visit.pick(png(50), png(51), png(52))
        visit.ask("What are they?")
        visit.answered(1)
        visit.ask("And now?")
        visit.answered(2)
        hints = {
            request.headers.get("x-qwink-picture")
            for request in visit.requests
            if "/v1/images" in request.url or "/chat/" in request.url
        }
        assert hints == {f"sha256:{hashlib.sha256(png(50)).hexdigest()}"}
        visit.check()
        browser.close()
    after = [server.metric('qwink_requests_total{route="/v1/images"') for server in servers]
    assert sorted(a - b > 0 for a, b in zip(after, before, strict=True)) == [False, True]


def test_without_the_header_and_files(servers: list[Server], address: str) -> None:
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none") as client:
        assert ask(client, user("Hi"), model="nano").choices
        file = client.files.create(file=("in.jsonl", b"{}"), purpose="batch")
        assert all(client.files.retrieve(file.id).id == file.id for _ in range(4))


def test_a_server_that_stops_is_passed_over(
    servers: list[Server], address: str, serve: Serve
) -> None:
    """Runs last."""
    assert servers[1].stop() == 0
    for seed in range(8):
        content = png(seed)
        hint = f"sha256:{hashlib.sha256(content).hexdigest()}"
        response = httpx.post(
            f"{address}/v1/images",
            content=content,
            headers={"X-Qwink-Picture": hint},
            trust_env=False,
        )
        assert response.status_code == 200
