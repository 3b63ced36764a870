"""Fixtures: a browser, and servers with nano.

There is one browser per test module, not one per session: while Playwright is open, the thread has
a running event loop, and asyncio.run in other tests would fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.page.visit import FLAGS, PATIENCE_MS, Visit, chromium
from tests.server.process import Serve, Server, starter

expect.set_options(timeout=PATIENCE_MS)

MakeVisit = Callable[..., Visit]


@pytest.fixture(scope="session")
def nano_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nano-home")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS, timeout=PATIENCE_MS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def server(nano_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    servers = starter(Path("nano"), nano_home, tmp_path_factory.mktemp("page"))
    yield next(servers)().wait_ready()
    next(servers, None)


@pytest.fixture
def serve(nano_home: Path, tmp_path: Path) -> Iterator[Serve]:
    yield from starter(Path("nano"), nano_home, tmp_path)


@pytest.fixture
def visit_of(browser: Browser) -> Iterator[MakeVisit]:
    """`visit_of(server, **context options)` opens a tab. The teardown checks it for errors."""
    visits: list[Visit] = []

    def make(server: Server, **options: Any) -> Visit:
        defaults = {"viewport": {"width": 1100, "height": 820}, "locale": "en-GB"}
        context = browser.new_context(**defaults | options)
        visits.append(Visit(context.new_page(), server.address))
        return visits[-1].open()

    yield make
    for visit in visits:
        visit.page.context.close()
    for visit in visits:
        visit.check()


@pytest.fixture
def visit(visit_of: MakeVisit, server: Server) -> Visit:
    return visit_of(server).ready()
