"""What can be asked about on the page: PDFs, films, formats that browsers lack, and texts alone."""

from __future__ import annotations

import io
from pathlib import Path

import PIL.Image
import pytest
from playwright.sync_api import FilePayload, expect

from tests.inputs.pdfs import write_pdf
from tests.inputs.videos import write_video
from tests.page.visit import Visit, file_of, shapes


def add(visit: Visit, name: str, kind: str, content: bytes) -> None:
    before = visit.thumbs.count()
    visit.page.set_input_files("#files", {"name": name, "mimeType": kind, "buffer": content})
    expect(visit.thumbs).to_have_count(before + 1)


def test_pages_of_a_pdf_are_chosen(visit: Visit) -> None:
    page = visit.page
    add(visit, "report.pdf", "application/pdf", write_pdf([f"Page {n}" for n in range(1, 5)]))
    expect(page.locator(".frame[aria-pressed=true]")).to_have_count(4)
    page.get_by_role("button", name="Page 2").click()
    expect(page.get_by_label("Pages", exact=True)).to_have_value("1,3-4")
    page.get_by_label("Pages", exact=True).fill("2-3")
    page.get_by_label("Pages", exact=True).press("Tab")
    expect(page.locator(".frame[aria-pressed=true]")).to_have_count(2)
    expect(page.locator("#cost")).to_contain_text("tokens")
    visit.shoot("pdf")
    visit.ask("What does it say?")
    visit.answered()
    part = visit.asked()[0]["messages"][0]["content"][0]
    assert (part["type"], part["file"]["pages"]) == ("file", "2-3")


def test_a_part_of_a_film_is_chosen(visit: Visit, tmp_path: Path) -> None:
    page = visit.page
    content = write_video(tmp_path / "clip.mp4", 60, rate=10).read_bytes()
    add(visit, "clip.mp4", "video/mp4", content)
    expect(page.locator(".frame")).to_have_count(12)
    page.get_by_label("From", exact=True).fill("2")
    page.get_by_label("From", exact=True).press("Tab")
    page.get_by_role("button", name="End at").last.click()
    assert page.locator(".frame[aria-pressed=true]").count() < 12
    visit.shoot("film")
    visit.ask("What happens?")
    visit.answered()
    part = visit.asked()[0]["messages"][0]["content"][0]
    assert part["type"] == "video_url"
    assert part["video_url"]["start"] == 2
    assert part["video_url"]["url"].startswith("qwink:sha256:")


def test_what_only_the_server_can_read(visit: Visit) -> None:
    heif = pytest.importorskip("pillow_heif")
    file = io.BytesIO()
    heif.from_pillow(PIL.Image.open(io.BytesIO(shapes()))).save(file)
    add(visit, "photo.heic", "image/heic", file.getvalue())
    add(visit, "scan.tif", "image/tiff", file_of(PIL.Image.new("RGB", (80, 60), "red"), "TIFF"))
    expect(visit.thumbs.first).to_contain_text("640 × 420")
    visit.ask("What is it?")
    visit.answered()


def test_each_bad_file_is_named(visit: Visit) -> None:
    visit.may_fail = True
    files: list[FilePayload] = [
        {"name": f"bad{n}.png", "mimeType": "image/png", "buffer": b"no"} for n in range(3)
    ]
    visit.page.set_input_files("#files", files)
    for number in range(3):
        expect(visit.page.locator("#notice")).to_contain_text(f"bad{number}.png")
    visit.shoot("error")


def test_a_text_alone_with_a_system_prompt_and_sampling(visit: Visit) -> None:
    page = visit.page
    page.locator("#composer .more summary").click()
    page.locator("#composer").get_by_label("System prompt").fill("Answer in one word.")
    page.locator("#composer").get_by_label("Seed").fill("7")
    page.locator("#composer").get_by_label("Top p").fill("0.5")
    page.locator("#composer").get_by_label("Longest answer").fill("5")
    page.locator("#composer").get_by_label("Longest answer").press("Tab")
    visit.ask("Hello")
    visit.answered()
    asked = visit.asked()[0]
    assert asked["messages"][0] == {"role": "system", "content": "Answer in one word."}
    assert asked["messages"][1]["content"] == [{"type": "text", "text": "Hello"}]
    assert (asked["seed"], asked["top_p"], asked["max_tokens"]) == (7, 0.5, 5)


def test_what_will_not_do_is_said_before(visit: Visit) -> None:
    warnings = visit.page.locator(".warnings")
    visit.pick(file_of(PIL.Image.new("RGB", (690, 15420), "white")))
    expect(warnings).to_contain_text("of its size (690×15420)")
    visit.page.get_by_role("button", name="Remove").click()
    expect(warnings).to_be_empty()
    visit.page.fill("#question", "word " * 20_000)
    expect(warnings).to_contain_text("that the model holds")
