"""Conversations that the browser keeps: over a reload, in a list, and not if the user says so."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Route, expect

from tests.page.conftest import MakeVisit
from tests.page.test_ask import SLOW_ANSWERS
from tests.page.visit import PATIENCE_MS, Visit, line, receipt
from tests.server.process import Serve


def test_a_reload_keeps_the_conversation(visit: Visit) -> None:
    visit.pick(receipt())
    visit.ask("What does it say?")
    turn = visit.answered()
    expect(turn.locator(".text")).to_have_text("Total 42.50")
    visit.page.reload()
    turn = visit.ready().answered()
    expect(turn.locator(".text")).to_have_text("Total 42.50")
    expect(turn.locator(".shown img")).to_have_count(1)
    expect(turn.locator(".timings > summary")).to_contain_text("to the first word")
    # The conversation goes on with its picture.
    visit.ask("Read the text.")
    visit.answered(2)
    assert len(visit.asked()) == 2
    roles = [message["role"] for message in visit.asked()[-1]["messages"]]
    assert roles == ["user", "assistant", "user"]


def test_a_reload_in_the_middle_asks_nothing_twice(visit: Visit) -> None:
    held: list[Route] = []
    visit.page.route("**/v1/chat/completions", lambda route: held.append(route))
    visit.ask("Describe this picture.")
    expect(visit.page.locator(".now")).not_to_be_empty()
    visit.kept("Describe this picture.")
    visit.page.unroute("**/v1/chat/completions")
    visit.page.reload()
    turn = visit.ready().page.locator(".turn").last
    expect(turn.locator(".question")).to_have_text("Describe this picture.")
    expect(turn.locator(".remark")).to_have_text("The page was left before the answer ended.")
    assert len(held) == 1
    turn.locator(".retry").click()
    visit.answered()


def test_conversations_are_listed_searched_renamed_and_deleted(visit: Visit) -> None:
    page = visit.page
    for number, question in enumerate(("What does it say?", "Read the text.")):
        visit.pick(receipt())
        visit.ask(question)
        visit.answered()
        if number == 0:
            page.click("#fresh")
    page.click("#history")
    dialog = page.locator("#history-dialog")
    rows = dialog.locator(".conversations > li")
    expect(rows).to_have_count(2)
    dialog.get_by_role("searchbox").fill("does it")
    expect(rows).to_have_count(1)
    with page.expect_download() as download:
        rows.get_by_role("button", name="Markdown").click()
    text = download.value.path().read_text("utf-8")
    assert "**What does it say?**" in text
    assert "Total 42.50" in text
    assert "](data:image/png;base64," in text
    rows.get_by_role("button", name="Rename").click()
    dialog.locator(".conversations input").fill("A receipt")
    dialog.locator(".conversations input").press("Enter")
    dialog.get_by_role("searchbox").fill("A receipt")
    rows.locator(".title").click()
    expect(page.locator(".turn .question")).to_have_text("What does it say?")
    page.click("#history")
    dialog.get_by_role("button", name="Delete all").click()
    expect(dialog).to_contain_text("No conversations are kept")
    expect(page.locator(".turn")).to_have_count(0, timeout=PATIENCE_MS)


def test_nothing_is_kept_if_the_user_says_so(visit: Visit) -> None:
    page = visit.page
    page.click("#history")
    page.locator("#history-dialog input[type=checkbox]").uncheck()
    page.get_by_role("button", name="Close").click()
    visit.pick(receipt())
    visit.ask("What does it say?")
    visit.answered()
    page.reload()
    visit.ready()
    expect(page.locator(".turn")).to_have_count(0)


def test_versions_of_questions_and_answers_stay(visit: Visit) -> None:
    page = visit.page
    visit.pick(line("Version 1"))
    visit.ask("What does it say?")
    visit.answered()
    visit.ask("Read the text.")
    visit.answered(2)
    # The first question is changed; the second one stays with the version before.
    first = page.locator(".turn").first
    first.locator(".change").click()
    first.get_by_label("Question").fill("What is the total?")
    first.get_by_label("Question").press("Enter")
    visit.answered()
    question = page.locator(".turn .question")
    expect(question).to_have_text(["What is the total?"])
    assert len(visit.asked()[-1]["messages"]) == 1
    assert len(visit.uploads()) == 1
    page.locator(".retry").click()
    expect(page.locator(".versions")).to_contain_text("3 of 3")
    visit.answered()
    page.locator(".version-before").click()
    page.locator(".version-before").click()
    expect(question).to_have_text(["What does it say?", "Read the text."])
    expect(page.locator(".turn .shown img")).to_have_count(1)
    # All of them survive a reload.
    visit.kept("Read the text.", turns=2)
    page.reload()
    visit.ready().answered(2)
    expect(question).to_have_text(["What does it say?", "Read the text."])
    page.locator(".version-after").click()
    expect(question).to_have_text(["What is the total?"])
    assert len(visit.asked()) == 4


def test_a_killed_server_and_a_reload_lose_nothing(
    serve: Serve, visit_of: MakeVisit, tmp_path: Path
) -> None:
    (slow := tmp_path / "slow").touch()
    server = serve(code=SLOW_ANSWERS, SLOW_FILE=str(slow)).wait_ready()
    page = (visit := visit_of(server).ready()).page
    visit.may_fail = True
    visit.pick(receipt())
    visit.ask("Read the text.")
    expect(page.locator(".turn .text")).not_to_be_empty()
    # A real answer is on its way: a reload keeps what came, and asks nothing.
    visit.kept("Read the text.", text=True)
    page.reload()
    visit.ready()
    expect(page.locator(".remark")).to_have_text("The page was left before the answer ended.")
    expect(page.locator(".turn .text")).not_to_be_empty()
    assert len(visit.asked()) == 1
    page.locator(".retry").click()
    expect(page.locator(".now [data-stage=generate]")).to_be_visible()
    expect(page.locator(".turn .text")).not_to_be_empty()
    server.process.kill()
    expect(page.locator(".error")).to_contain_text("connection to the server was lost")
    visit.kept("Read the text.", text=True, ended=True)
    slow.unlink()
    serve("--port", server.address.rsplit(":", 1)[1]).wait_ready()
    page.reload()
    visit.ready()
    expect(page.locator(".turn .question")).to_have_text(["Read the text."])
    expect(page.locator(".turn .shown img")).to_have_count(1)
    expect(page.locator(".versions")).to_contain_text("2 of 2")
    assert len(visit.asked()) == 2
    page.locator(".retry").click()
    visit.answered()
    expect(page.locator(".versions")).to_contain_text("3 of 3")
