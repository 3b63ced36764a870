"""The table: one question about each of many pictures."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
from playwright.sync_api import Locator, expect

from tests.inputs.pdfs import write_pdf
from tests.page.conftest import MakeVisit
from tests.page.visit import Visit, file_of, line
from tests.server.process import Serve, Server

PHONE = {"width": 390, "height": 844}


def folder_of(place: Path, count: int) -> Path:
    """A folder of pictures that look different enough, each with a line of text."""
    folder = place / "receipts"
    folder.mkdir()
    for number in range(count):
        picture = PIL.Image.open(io.BytesIO(line(f"Total {number * 37 % 100}.{number:02}")))
        shade = PIL.Image.new("RGB", (256, 64), (255, 255 - 3 * number, 255 - 2 * number))
        shade.paste(picture.crop((20, 10, 240, 50)), (2 * number % 30, number % 20))
        (folder / f"r{number}.png").write_bytes(file_of(shade))
    return folder


def rows(visit: Visit, state: str = "") -> Locator:
    return visit.page.locator(
        f'.rows tbody tr[data-state="{state}"]' if state else ".rows tbody tr"
    )


def fill(visit: Visit, folder: Path, count: int, question: str = "What is the total?") -> None:
    """Open the table, add the folder, and write the question."""
    visit.page.click("#mode")
    visit.page.set_input_files("#table-folder", folder)
    expect(rows(visit)).to_have_count(count)
    visit.page.fill("#table-question", question)
    all_too = visit.page.get_by_role("button", name="Ask about them too")
    expect(visit.page.locator(".table-state")).not_to_contain_text("Opening")
    if all_too.is_visible():
        all_too.click()


def start(visit: Visit) -> None:
    visit.page.locator(".table-run .button.main").click()


def download(visit: Visit, name: str) -> bytes:
    with visit.page.expect_download() as found:
        visit.page.get_by_role("button", name=name, exact=True).click()
    return Path(found.value.path()).read_bytes()


def test_a_folder_becomes_rows(visit: Visit, server: Server, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, 4)
    (folder / "r2.png").write_bytes(b"not a picture")
    (folder / "blank.png").write_bytes(file_of(PIL.Image.new("RGB", (256, 64), "white")))
    (folder / "z-again.png").write_bytes((folder / "r0.png").read_bytes())
    visit.may_fail = True  # the picture that cannot be read
    page = visit.page
    page.click("#mode")
    page.set_input_files("#table-folder", folder)
    expect(rows(visit)).to_have_count(5)
    expect(page.locator(".notices")).to_contain_text("receipts/r2.png: neither this browser nor")
    expect(rows(visit).locator(".name")).to_have_text(
        [f"receipts/{name}.png" for name in ("blank", "r0", "r1", "r3", "z-again")]
    )
    page.fill("#table-question", "What is the total?")
    expect(page.locator(".notices")).to_contain_text("1 are blank")
    page.get_by_role("button", name="Skip them").click()
    start(visit)
    expect(rows(visit, "answered")).to_have_count(4)
    expect(rows(visit, "skipped")).to_have_count(1)
    visit.shoot("table")
    asked = visit.asked()
    assert {one["service_tier"] for one in asked} == {"flex"}
    assert len(asked) == 3  # neither the blank one nor the one that is there twice
    found = [json.loads(text) for text in download(visit, "JSON lines").splitlines()]
    assert [one["source"] for one in found] == [
        f"receipts/{name}.png" for name in ("blank", "r0", "r1", "r3", "z-again")
    ]
    assert found[0]["skipped"] == "blank"
    assert (found[4]["same_as"], found[4]["answer"]) == ("receipts/r0.png", found[1]["answer"])
    assert found[1]["timings"]["total_ms"] > 0
    table = list(csv.DictReader(io.StringIO(download(visit, "CSV").decode())))
    assert [one["answer"] for one in table] == [one["answer"] or "" for one in found]
    excel = download(visit, "For Excel")
    assert excel[:2] == b"\xff\xfe"
    assert excel.decode("utf-16").splitlines()[0].split("\t")[0] == '"source"'
    page.get_by_role("button", name="Picture").click()
    page.get_by_role("button", name="Picture").click()
    expect(rows(visit).first.locator(".name")).to_have_text("receipts/z-again.png")
    page.get_by_role("searchbox").fill("r1")
    expect(rows(visit)).to_have_count(1)
    page.get_by_role("button", name="Clear the table").click()
    page.reload()
    expect(rows(visit)).to_have_count(0)


def test_fields_become_columns_and_errors_are_retried(visit: Visit, tmp_path: Path) -> None:
    fill(visit, folder_of(tmp_path, 3), 3)
    visit.may_fail = True
    page = visit.page
    page.get_by_role("button", name="Fields", exact=True).click()
    expect(page.locator(".fault").first).to_have_text("Name at least one field.")
    page.locator(".fields .name").fill("total")
    page.get_by_label("Kind").select_option("number")
    page.get_by_role("button", name="Add a field").click()
    page.locator(".fields .name").last.fill("currency")
    page.get_by_label("Kind").last.select_option("choice")
    page.get_by_label("Choices, with commas").fill("EUR, USD")
    refusal = {"error": {"message": "this picture is damaged", "code": "invalid_image"}}
    page.route(
        "**/v1/chat/completions", lambda route: route.fulfill(status=400, json=refusal), times=1
    )
    start(visit)
    expect(rows(visit, "answered")).to_have_count(2)
    expect(rows(visit, "failed")).to_contain_text("this picture is damaged")
    page.get_by_role("button", name="Retry 1 with errors").click()
    expect(rows(visit, "answered")).to_have_count(3)
    expect(page.locator(".rows th")).to_have_text(["# ↑", "Picture", "total", "currency", "Time"])
    schema = visit.asked()[0]["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["currency"] == {"type": "string", "enum": ["EUR", "USD"]}
    assert schema["required"] == ["total", "currency"]
    found = [json.loads(text) for text in download(visit, "JSON lines").splitlines()]
    assert all(isinstance(one["parsed"]["total"], int | float) for one in found)
    page.get_by_role("button", name="A JSON Schema").click()
    expect(page.get_by_role("textbox", name="A JSON Schema")).to_have_value(
        json.dumps(schema, indent=2)
    )


def test_pages_of_a_pdf_are_rows(visit_of: MakeVisit, server: Server) -> None:
    visit = visit_of(server, viewport=PHONE, has_touch=True, is_mobile=True).ready()
    visit.page.click("#mode")
    content = write_pdf(["One", "Two"])
    file: Any = {"name": "a.pdf", "mimeType": "application/pdf", "buffer": content}
    visit.page.set_input_files("#table-files", file)
    expect(rows(visit)).to_have_count(2)
    visit.page.fill("#table-question", "What does it say?")
    start(visit)
    expect(rows(visit, "answered")).to_have_count(2)
    parts = [one["messages"][0]["content"][0]["file"]["pages"] for one in visit.asked()]
    assert sorted(parts) == ["1", "2"]
    wide = visit.page.evaluate("document.documentElement.scrollWidth")
    assert wide == PHONE["width"]
    visit.shoot("phone-table")


def shown(visit: Visit) -> dict[str, str]:
    """The answers that the table shows, by the name of the picture."""
    script = """all => all.map((one) => [one.querySelector('.name').textContent,
        one.querySelector('.answer-text').textContent])"""
    return dict(rows(visit, "answered").evaluate_all(script))


@pytest.mark.slow
def test_a_refresh_and_a_killed_server_lose_nothing(
    visit_of: MakeVisit, serve: Serve, tmp_path: Path
) -> None:
    count = 24
    server = serve("--max-running", 1).wait_ready()
    visit = visit_of(server).ready()
    visit.may_fail = True
    page = visit.page
    fill(visit, folder_of(tmp_path, count), count)
    start(visit)
    expect(rows(visit, "answered").nth(2)).to_be_visible()
    before = shown(visit)
    assert 3 <= len(before) < count
    page.reload()
    expect(rows(visit)).to_have_count(count)
    assert before.items() <= shown(visit).items()  # and it goes on by itself
    expect(rows(visit, "answered").nth(len(before) + 2)).to_be_visible()
    server.process.kill()
    expect(page.locator(".table-state")).to_contain_text("goes on by itself")
    between = shown(visit)
    assert len(between) < count
    serve("--port", server.address.rpartition(":")[2]).wait_ready()
    expect(rows(visit, "answered")).to_have_count(count)
    after = shown(visit)
    assert between.items() <= after.items()
    again = len(visit.asked()) - count
    lost = sum("/chat/completions" in address for address in visit.failed)
    assert again <= lost  # only requests whose answer was lost were made again
