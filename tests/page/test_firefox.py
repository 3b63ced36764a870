"""The page in Firefox, which is driven by WebDriver BiDi over its own port: no geckodriver."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.page.visit import PATIENCE_MS
from tests.server.process import Server

FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")
ASK = """async () => {
    const until = async (test) => {
        while (!test()) await new Promise((done) => setTimeout(done, 50));
    };
    const find = (selector) => document.querySelector(selector);
    await until(() => find('#status')?.dataset.state === 'ready');
    const file = await (await fetch('static/icon-192.png')).blob();
    const carried = new DataTransfer();
    carried.items.add(new File([file], 'icon.png', { type: 'image/png' }));
    find('#files').files = carried.files;
    find('#files').dispatchEvent(new Event('change'));
    await until(() => find('.thumb'));
    find('#question').value = 'What is it?';
    find('#send').click();
    await until(() => find('.timings'));
    return find('.turn .question').textContent;
}"""
IN_HISTORY = """async () => {
    const { History } = await import('/static/history.js');
    const history = new History();
    while (!(await history.list()).some(({ turns }) => turns[0].outcome)) {
        await new Promise((done) => setTimeout(done, 50));
    }
    return true;
}"""
KEPT = """async () => {
    while (!document.querySelector('.timings')) await new Promise((done) => setTimeout(done, 50));
    return document.querySelectorAll('.turn .shown img').length;
}"""

Command = Callable[..., dict[str, Any]]


@pytest.fixture
def bidi(tmp_path: Path) -> Iterator[Command]:
    """`bidi(method, **parameters)` sends a command to a new Firefox and returns its result."""
    client = pytest.importorskip("websockets.sync.client")
    if FIREFOX is None:
        pytest.skip("no Firefox; on Debian: sudo apt install firefox-esr")
    command = [FIREFOX, "--headless", "--no-remote", "--profile", str(tmp_path)]
    log = tmp_path / "firefox.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, "--remote-debugging-port", "0", "about:blank"], stderr=output, stdout=output
        )
    try:
        until = time.monotonic() + PATIENCE_MS / 1000
        while "WebDriver BiDi listening on " not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.1)
        address = log.read_text().split("WebDriver BiDi listening on ")[1].split()[0]
        numbers = itertools.count(1)
        with client.connect(f"{address}/session", proxy=None, max_size=None) as socket:

            def send(method: str, **parameters: Any) -> dict[str, Any]:
                number = next(numbers)
                socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
                while True:
                    answer = json.loads(socket.recv(timeout=PATIENCE_MS / 1000))
                    if answer.get("id") == number:
                        assert answer["type"] == "success", answer
                        result: dict[str, Any] = answer["result"]
                        return result

            send("session.new", capabilities={})
            yield send
    finally:
        process.terminate()
        process.wait(30)


def test_ask_and_reload(bidi: Command, server: Server) -> None:
    context = bidi("browsingContext.getTree")["contexts"][0]["context"]
    bidi("browsingContext.navigate", context=context, url=server.address, wait="complete")

    def call(code: str) -> Any:
        answer = bidi(
            "script.callFunction",
            functionDeclaration=code,
            awaitPromise=True,
            target={"context": context},
        )
        assert answer["type"] == "success", answer
        return answer["result"]["value"]

    assert call(ASK) == "What is it?"
    call(IN_HISTORY)
    bidi("browsingContext.reload", context=context, wait="complete")
    assert call(KEPT) == 1
