"""Asking questions on the page, with a real server and nano."""

from __future__ import annotations

import io
import re
from pathlib import Path

import PIL.Image
from playwright.sync_api import Route, expect

from qwink.inputs.budget import Budget, fit
from tests.page.conftest import MakeVisit
from tests.page.visit import Visit, file_of, line, shapes
from tests.server.process import Serve

# Slow servers, so that tests can act during an answer. This one is slow while SLOW_FILE exists.
SLOW_ANSWERS = """
import os, time
from qwink.engine.onnx import OnnxEngine
step = OnnxEngine.step
def slowly(self, *arguments, **options):
    if os.path.exists(os.environ["SLOW_FILE"]):
        time.sleep(2)
    return step(self, *arguments, **options)
OnnxEngine.step = slowly
from qwink.cli import main; main()
"""
SLOW_LOADING = """
import time
from qwink.server import run
load = run.load
run.load = lambda *a, **k: (time.sleep(6), load(*a, **k))[1]
from qwink.cli import main; main()
"""


def test_drop_ask_and_see_where_the_time_went(visit: Visit) -> None:
    visit.bring("drop", "receipt.png", line())
    expect(visit.thumbs).to_contain_text("256 × 64")
    expect(visit.thumbs).to_contain_text("16 tokens")
    visit.page.click("[data-preset=read]")
    visit.ask()
    turn = visit.answered()
    expect(turn.locator(".text")).not_to_be_empty()
    stages = turn.locator(".bar .part").evaluate_all("all => all.map((p) => p.dataset.stage)")
    expected = ["queue", "fetch", "decode", "resize", "encode", "prefill", "generate"]
    assert [stage for stage in stages if stage != "other"] == expected
    expect(turn.locator(".bar")).to_have_attribute("aria-label", re.compile(r"generate [\d.]+ m?s"))
    expect(turn.locator(".timings > summary")).to_contain_text("tokens/s")
    # The expected time comes from the times of this answer.
    expect(visit.page.locator("#cost")).to_contain_text("to the first word")
    expect(visit.page.locator("#live")).to_contain_text("The answer is complete.")


def test_pasted_picture_asked_about_again_is_reused_and_not_sent_again(visit: Visit) -> None:
    picture = line("Paste 7")
    visit.bring("paste", "image.png", picture)
    expect(visit.thumbs).to_have_count(1)
    visit.ask("Read the text.")
    visit.answered()
    assert len(visit.uploads()) == 1
    visit.page.click("#fresh")
    visit.bring("paste", "image.png", picture)
    expect(visit.thumbs).to_have_count(1)
    visit.ask("What is in this picture?")
    turn = visit.answered()
    assert len(visit.uploads()) == 1
    expect(turn.locator(".part.encode")).to_have_class(re.compile("reused"))
    expect(turn.locator("dl.stages [data-stage=encode]")).to_contain_text("reused")


def test_two_pictures_remove_and_follow_up(visit: Visit) -> None:
    visit.pick(line("First 1"), shapes(), line("Third 3"))
    visit.page.get_by_role("button", name="Remove 1.png").click()
    expect(visit.thumbs).to_have_count(2)
    visit.ask("Read the text.")
    first = visit.answered().locator(".text").inner_text()
    visit.page.fill("#question", "And now?")
    visit.page.keyboard.press("Enter")
    visit.answered(2)
    messages = visit.asked()[-1]["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert [p["type"] for p in messages[0]["content"]] == ["image_url", "image_url", "text"]
    assert messages[1]["content"].strip() == first.strip()
    assert messages[2]["content"] == [{"type": "text", "text": "And now?"}]
    assert len(visit.uploads()) == 2


def test_stop_and_ask_again(serve: Serve, visit_of: MakeVisit, tmp_path: Path) -> None:
    (slow := tmp_path / "slow").touch()
    server = serve("--max-running", 1, code=SLOW_ANSWERS, SLOW_FILE=str(slow))
    visit, other = visit_of(server).ready(), visit_of(server).ready()
    other.pick(line("Other 2"))
    visit.pick(line())
    visit.ask("Read the text.")
    page = visit.page
    expect(page.locator(".now [data-stage=generate]")).to_have_text("Answering")
    expect(page.locator(".answer")).to_have_attribute("aria-busy", "true")
    other.ask("Read the text.")
    expect(other.page.locator(".now [data-stage=queue]")).to_contain_text("Waiting; ")
    page.keyboard.press("Escape")
    expect(page.locator(".remark")).to_have_text("You stopped it.")
    expect(page.locator(".timings")).to_have_count(0)
    expect(page.locator("#send")).to_be_visible()
    slow.unlink()
    other.answered()
    page.click(".retry")
    visit.answered()
    expect(page.locator(".turn")).to_have_count(1)
    expect(page.locator(".remark")).to_have_count(0)


def test_questions_before_the_model_is_loaded_are_asked_when_it_is(
    serve: Serve, visit_of: MakeVisit
) -> None:
    visit = visit_of(serve(code=SLOW_LOADING))
    expect(visit.page.locator("#status")).to_contain_text("Loading the model")
    visit.pick(line())
    visit.ask("Read the text.")
    expect(visit.page.locator(".now")).to_contain_text("Waiting for the server and its model")
    visit.answered()
    expect(visit.page.locator("#status")).to_contain_text("nano")


def test_conversation_continues_after_a_restart_of_the_server(
    serve: Serve, visit_of: MakeVisit, tmp_path: Path
) -> None:
    slow = tmp_path / "slow"
    server = serve(code=SLOW_ANSWERS, SLOW_FILE=str(slow)).wait_ready()
    page = (visit := visit_of(server).ready()).page
    visit.pick(line("Before 1"))
    visit.ask("Read the text.")
    visit.answered()
    visit.may_fail = True
    slow.touch()
    visit.ask("And now?")
    expect(page.locator(".now [data-stage=generate]")).to_have_text("Answering")
    server.process.kill()  # while it is answering
    expect(page.locator(".error")).to_contain_text("connection to the server was lost")
    expect(page.locator(".turn .text").last).not_to_be_empty()
    expect(page.locator("#status")).to_have_attribute("data-state", "offline")
    page.click(".turn:last-child .retry")
    expect(page.locator(".now").last).to_contain_text("Waiting for the server")
    serve("--port", server.address.rsplit(":", 1)[1])
    visit.answered(2)
    assert len(visit.uploads()) == 2
    roles = [message["role"] for message in visit.asked()[-1]["messages"]]
    assert roles == ["user", "assistant", "user"]


def test_wrong_file(visit: Visit) -> None:
    visit.bring("drop", "notes.txt", b"no picture", "text/plain")
    notice = visit.page.get_by_role("alert").first
    expect(notice).to_contain_text("notes.txt is not a picture")
    visit.bring("drop", "cut.png", line()[:20])
    expect(notice).to_contain_text("cut.png is not a picture")
    expect(visit.thumbs).to_have_count(0)
    visit.ask("Read the text.")
    expect(notice).to_contain_text("Add a picture first")
    assert visit.asked() == []


def test_a_picture_the_server_refuses_can_be_taken_back(visit: Visit) -> None:
    visit.may_fail = True
    visit.pick(line()[: len(line()) // 4])  # browsers show truncated pictures
    visit.ask("Read the text.")
    expect(visit.page.locator(".error")).to_contain_text("The server cannot read a picture")
    visit.page.click(".change")
    expect(visit.page.locator(".turn")).to_have_count(0)
    expect(visit.page.locator("#question")).to_have_value("Read the text.")
    visit.page.get_by_role("button", name="Remove 0.png").click()
    visit.pick(line())
    visit.ask()
    visit.answered()


def test_errors_name_a_way_out(visit: Visit) -> None:
    visit.may_fail = True

    def refuse(route: Route) -> None:
        error = {"message": "too many", "type": "rate_limit_error", "code": "overloaded"}
        route.fulfill(status=429, headers={"Retry-After": "7"}, json={"error": error})

    visit.page.route("**/v1/chat/completions", refuse)
    visit.pick(line())
    visit.ask("Read the text.")
    expect(visit.page.locator(".error")).to_contain_text("Ask again in about 7 s")
    visit.page.unroute("**/v1/chat/completions")
    visit.page.click(".retry")
    visit.answered()
    expect(visit.page.locator(".error")).to_have_count(0)


def test_large_pictures_are_sent_small_and_upright(visit: Visit) -> None:
    photo = PIL.Image.new("RGB", (1600, 800), "navy")
    photo.paste("orange", (0, 0, 1600, 100))  # on the right once upright: turned clockwise
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    visit.pick(file_of(photo, "JPEG", exif=exif), kind="image/jpeg")
    expect(visit.thumbs).to_contain_text("800 × 1600")
    visit.ask("Describe this picture.")
    visit.answered()
    (upload,) = visit.uploads()
    body = upload.post_data_buffer
    assert body is not None
    with PIL.Image.open(io.BytesIO(body)) as sent:
        assert sent.size == fit(800, 1600, Budget("describe", 4096, 50176, ""))
        red, _, blue = sent.convert("RGB").getpixel((sent.width - 3, sent.height // 2))  # type: ignore[misc]
    assert red > blue


def test_sizes_are_the_servers(visit: Visit) -> None:
    sizes = [(w, h) for w in (1, 31, 48, 333, 4000) for h in (5, 80, 640, 1999)]
    for least, most in ((4096, 50176), (200_704, 786_432), (65_536, 131_072)):
        ours = visit.page.evaluate(
            """async ([sizes, area]) => {
                const { fit } = await import('/static/budget.js');
                return sizes.map(([w, h]) => fit(w, h, area).map((side) => side * 32));
            }""",
            [sizes, {"least": least, "most": most}],
        )
        budget = Budget("ocr", least, most, "")
        assert [tuple(size) for size in ours] == [fit(w, h, budget) for w, h in sizes]


def test_less_detail_costs_less(visit: Visit) -> None:
    visit.pick(shapes())
    cost = visit.page.locator("#cost")
    tokens = cost.inner_text()
    slider = visit.page.get_by_label("Detail")
    slider.focus()
    visit.page.keyboard.press("Home")
    expect(cost).not_to_have_text(tokens)
    expect(slider).to_have_attribute("aria-valuetext", re.compile("16 tokens"))
    visit.ask("Describe this picture.")
    visit.answered()
    assert visit.asked()[0]["max_pixels"] == 16 * 1024
    visit.page.click("#budget-auto")
    expect(cost).to_contain_text("49 tokens")


def test_keys_are_asked_for(serve: Serve, visit_of: MakeVisit) -> None:
    server = serve(QWINK_API_KEYS="open-sesame").wait_ready()
    visit = visit_of(server)
    visit.may_fail = True
    visit.page.get_by_label("API key").fill("close-sesame")
    visit.page.keyboard.press("Enter")
    expect(visit.page.locator("#key-dialog").get_by_role("alert")).to_contain_text(
        "refused this key"
    )
    visit.page.get_by_label("API key").fill("open-sesame")
    visit.page.keyboard.press("Enter")
    visit.ready()
    visit.pick(line())
    visit.ask("Read the text.")
    visit.answered()
