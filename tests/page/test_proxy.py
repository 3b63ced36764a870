"""The page behind a real nginx, under a path."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.deploy.nginx import example, proxy
from tests.page.visit import Visit, line
from tests.server.process import Server


def test_ask_under_a_path(browser: Browser, server: Server, tmp_path: Path) -> None:
    with proxy(example(server.address), tmp_path / "nginx") as address:
        context = browser.new_context(locale="en-GB")
        visit = Visit(context.new_page(), f"{address}/qwink/").open().ready()
        visit.bring("drop", "receipt.png", line())
        visit.ask("What does it say?")
        expect(visit.answered().locator(".text")).not_to_be_empty()
        context.close()
        visit.check()


def test_the_limit_of_the_proxy_is_named(browser: Browser, server: Server, tmp_path: Path) -> None:
    location = f"location / {{ proxy_pass {server.address}; client_max_body_size 64; }}"
    with proxy(location, tmp_path / "nginx") as address:
        context = browser.new_context(locale="en-GB")
        visit = Visit(context.new_page(), address)
        visit.may_fail = True
        visit.open().ready()
        visit.bring("drop", "receipt.png", line())
        visit.ask("What does it say?")
        expect(visit.page.locator("body")).to_contain_text("client_max_body_size", timeout=30_000)
        context.close()
        visit.check()
