"""A folder of receipts through the page's table, compared with `qwink batch`, with nano.

Run it from the repository's root: `.venv/bin/python -m benchmarks.page_table`. It needs Chromium.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import PIL.Image
import PIL.ImageDraw
import PIL.ImageFont
from playwright.sync_api import Browser, Page, expect, sync_playwright

from qwink.lab import record
from tests.page.visit import FLAGS, Visit, chromium
from tests.server.process import starter

NUM_RECEIPTS = 60
QUESTION = "What is the total?"
GOODS = ("Tea", "Bread", "Milk", "Apples", "Cheese", "Rice", "Soap", "Honey")
PATIENCE_MS = 600_000


@dataclass(frozen=True, slots=True)
class TableResult:
    """Memory is what Chromium's processes occupy (PSS), before and at its most."""

    num_rows: int
    num_same_answers: int
    table_s: float
    batch_s: float
    ratio_of_times: float
    opening_s: float
    browser_before_mib: float
    browser_most_mib: float
    script_heap_mib: float


def receipt(number: int) -> PIL.Image.Image:
    """A receipt of a few goods and their total."""
    chance = random.Random(number)
    image = PIL.Image.new("RGB", (360, 420), "#fdfcf8")
    draw, font = PIL.ImageDraw.Draw(image), PIL.ImageFont.load_default(24)
    total = 0
    draw.text((90, 20), f"Shop {number + 1}", "black", font)
    for row, name in enumerate(chance.sample(GOODS, chance.randint(3, 7))):
        cents = chance.randint(50, 2000)
        total += cents
        draw.text((24, 70 + 36 * row), f"{name}", "black", font)
        draw.text((240, 70 + 36 * row), f"{cents / 100:.2f}", "black", font)
    draw.text((24, 360), f"Total {total / 100:.2f}", "black", font)
    return image


def memory_mib(browser: Browser) -> float:
    """Memory of all processes of the browser, shared pages counted in parts."""
    session = browser.new_browser_cdp_session()
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    session.detach()
    total = 0
    for process in processes:
        try:
            text = Path(f"/proc/{int(process['id'])}/smaps_rollup").read_text()
        except OSError:
            continue
        total += next(int(one.split()[1]) for one in text.splitlines() if one.startswith("Pss:"))
    return total / 1024


def through_table(page: Page, browser: Browser, folder: Path) -> tuple[list[Any], dict[str, float]]:
    before = memory_mib(browser)
    page.click("#mode")
    began = time.monotonic()
    page.set_input_files("#table-folder", folder)
    rows = page.locator(".rows tbody tr")
    expect(rows).to_have_count(NUM_RECEIPTS, timeout=PATIENCE_MS)
    opening = time.monotonic() - began
    page.fill("#table-question", QUESTION)
    all_too = page.get_by_role("button", name="Ask about them too")
    if all_too.is_visible():
        all_too.click()
    began, most = time.monotonic(), 0.0
    page.locator(".table-run .button.main").click()
    answered = page.locator('.rows tr[data-state="answered"]')
    while answered.count() < NUM_RECEIPTS:
        most = max(most, memory_mib(browser))
        assert page.locator('.rows tr[data-state="failed"]').count() == 0
        time.sleep(0.1)
    taken = time.monotonic() - began
    heap = page.evaluate("performance.memory.usedJSHeapSize") / 2**20
    with page.expect_download() as found:
        page.get_by_role("button", name="JSON lines").click()
    lines = Path(found.value.path()).read_text("utf-8").splitlines()
    figures = {"before": before, "most": most, "heap": heap, "opening": opening, "taken": taken}
    return [json.loads(text) for text in lines], figures


def through_batch(folder: Path, out: Path, home: Path) -> tuple[list[Any], float]:
    command = [sys.executable, "-m", "qwink", "batch", str(folder), "-q", QUESTION]
    environment = os.environ | {"QWINK_HOME": str(home), "QWINK_MODEL": "nano"}
    began = time.monotonic()
    subprocess.run([*command, "--out", str(out), "--threads", "1"], env=environment, check=True)
    taken = time.monotonic() - began
    return [json.loads(text) for text in out.read_text("utf-8").splitlines()], taken


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        folder, home = place / "receipts", place / "home"
        folder.mkdir()
        for number in range(NUM_RECEIPTS):
            receipt(number).save(folder / f"r{number:02}.png")
        servers = starter(Path("nano"), home, place)
        server = next(servers)().wait_ready()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=chromium(), args=[*FLAGS, "--enable-precise-memory-info"]
            )
            visit = Visit(browser.new_context(locale="en-GB").new_page(), server.address)
            table, figures = through_table(visit.open().ready().page, browser, folder)
            browser.close()
        next(servers, None)
        batch, batch_s = through_batch(folder, place / "out.jsonl", home)
    by_name = {Path(row["source"]).name: row["answer"] for row in batch}
    same = sum(by_name[Path(row["source"]).name] == row["answer"] for row in table)
    result = TableResult(
        num_rows=len(table),
        num_same_answers=same,
        table_s=round(figures["taken"], 2),
        batch_s=round(batch_s, 2),
        ratio_of_times=round(figures["taken"] / batch_s, 3),
        opening_s=round(figures["opening"], 2),
        browser_before_mib=round(figures["before"], 1),
        browser_most_mib=round(figures["most"], 1),
        script_heap_mib=round(figures["heap"], 1),
    )
    found = record.record("page-table", result)
    record.write(record.RESULTS / "page-table.json", found.document())
    print(json.dumps(found.document(), indent=2))


if __name__ == "__main__":
    main()
