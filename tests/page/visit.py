"""Drives the page in a browser tab, as a user would."""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import PIL.Image
import PIL.ImageDraw
import PIL.ImageFont
import pytest
from playwright.sync_api import ConsoleMessage, FilePayload, Locator, Page, Request, Route, expect

ROOT = Path(__file__).parents[2]
PATIENCE_MS = 90_000.0
SHOTS = ROOT / "docs" / "images"
AXE = "axe-core@4.14.1"
KEPT = """async ([question, turns, text, ended]) => {
    const result = (request) => new Promise((done, fail) => {
        request.onsuccess = () => done(request.result);
        request.onerror = () => fail(request.error);
    });
    const store = await result(indexedDB.open('qwink.history'));
    const all = store.transaction('conversations').objectStore('conversations').getAll();
    const found = await result(all);
    store.close();
    return found.some((one) => {
        const last = one.turns.at(-1);
        return one.turns.length === turns && last.question === question
            && (last.text || !text) && (last.outcome || !ended);
    });
}"""
# Without these flags, Chromium sends requests to Google.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def missing(message: str) -> None:
    """Skip the test, or fail it if these tests are required (.ci/run)."""
    if os.environ.get("QWINK_TEST_BROWSER") == "required":
        pytest.fail(message)
    pytest.skip(message)


def chromium() -> str:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    path = os.environ.get("QWINK_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if path is None:
        missing("no Chromium for the tests of the page; on Debian: sudo apt install chromium")
    assert path is not None
    return path


def axe_source() -> str:
    """axe-core's script. It is downloaded from npm's registry once, then cached."""
    cached = ROOT / ".cache" / f"{AXE}.js"
    if not cached.is_file():
        if shutil.which("npm") is None:
            missing("no npm to fetch axe-core with; on Debian: sudo apt install npm")
        folder = cached.parent
        folder.mkdir(exist_ok=True)
        command = ["npm", "pack", "--silent", AXE]
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if ran.returncode:
            missing(f"npm cannot fetch {AXE}: {ran.stderr}")
        archive = folder / ran.stdout.strip().splitlines()[-1]
        shutil.unpack_archive(archive, folder / "axe", filter="data")
        shutil.move(folder / "axe" / "package" / "axe.min.js", cached)
        shutil.rmtree(folder / "axe")
        archive.unlink()
    return cached.read_text("utf-8")


class Visit:
    """One tab at the server's address. It collects errors and requests for `check`."""

    def __init__(self, page: Page, address: str) -> None:
        self.page, self.address = page, address
        self.errors: list[str] = []
        self.requests: list[Request] = []
        self.failed: list[str] = []  # addresses of requests without a response
        self.may_fail = False  # whether requests may fail; the browser logs each as an error
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.context.on("request", lambda request: self.requests.append(request))
        page.context.on("requestfailed", lambda request: self.failed.append(request.url))

    def _on_console(self, message: ConsoleMessage) -> None:
        of_network = message.text.startswith("Failed to load resource")
        if message.type in ("error", "warning") and not (self.may_fail and of_network):
            self.errors.append(message.text)

    def check(self) -> None:
        """Assert that the console has no errors and that all requests went to the server."""
        assert self.errors == []
        inside = (self.address, "blob:", "data:")
        assert [r.url for r in self.requests if not r.url.startswith(inside)] == []

    def open(self) -> Visit:
        self.page.goto(self.address)
        return self

    def ready(self) -> Visit:
        expect(self.page.locator("#status")).to_have_attribute(
            "data-state", "ready", timeout=PATIENCE_MS
        )
        return self

    def pick(self, *pictures: bytes, kind: str = "image/png") -> None:
        """Choose files in the file picker."""
        before = self.thumbs.count()
        files: list[FilePayload] = [
            {"name": f"{number}.png", "mimeType": kind, "buffer": picture}
            for number, picture in enumerate(pictures)
        ]
        self.page.set_input_files("#files", files)
        expect(self.thumbs).to_have_count(before + len(pictures), timeout=PATIENCE_MS)

    def bring(self, event: str, name: str, content: bytes, kind: str = "image/png") -> None:
        """Drop or paste a file."""
        self.page.evaluate(
            """([event, name, content, kind]) => {
                const bytes = Uint8Array.from(atob(content), (c) => c.charCodeAt(0));
                const carried = new DataTransfer();
                carried.items.add(new File([bytes], name, { type: kind }));
                const options = { bubbles: true, cancelable: true };
                document.body.dispatchEvent(event === 'paste'
                    ? new ClipboardEvent('paste', { ...options, clipboardData: carried })
                    : new DragEvent(event, { ...options, dataTransfer: carried }));
            }""",
            [event, name, base64.b64encode(content).decode(), kind],
        )

    def ask(self, question: str | None = None) -> None:
        if question is not None:
            self.page.fill("#question", question)
        self.page.click("#send")

    def answered(self, number: int = 1) -> Locator:
        """Wait until `number` turns are answered; returns the last turn."""
        expect(self.page.locator(".timings")).to_have_count(number, timeout=PATIENCE_MS)
        return self.page.locator(".turn").last

    def kept(
        self, question: str, *, turns: int = 1, text: bool = False, ended: bool = False
    ) -> None:
        """Wait until the browser keeps a conversation of so many turns whose last one has this
        question and, if asked for, a text of its answer and the answer's end.
        """
        self.page.wait_for_function(KEPT, arg=[question, turns, text, ended])

    @property
    def thumbs(self) -> Locator:
        return self.page.locator(".thumb")

    def asked(self) -> list[Any]:
        """The JSON bodies of the chat requests."""
        sent = [r.post_data for r in self.requests if r.url.endswith("/chat/completions")]
        return [json.loads(data) for data in sent if data]

    def uploads(self) -> list[Request]:
        return [r for r in self.requests if r.method == "POST" and r.url.endswith("/v1/images")]

    def answer_with(self, text: str, reason: str = "stop") -> None:
        """Replace further answers by this text, streamed in the server's format."""
        timings = {f"{stage}_ms": 12.0 for stage in ("queue", "fetch", "decode", "resize")}
        timings |= {"encode_ms": 0.0, "prefill_ms": 310.0, "generate_ms": 940.0}
        timings |= {"total_ms": 1300.0, "first_token_ms": 360.0}
        origins = dict.fromkeys(("fetch", "decode", "resize", "prefill", "generate"), "computed")
        details = {"cached_tokens": 0, "image_tokens": 196}
        usage = {"prompt_tokens": 220, "completion_tokens": 40, "prompt_tokens_details": details}
        finish = {"finish_reason": reason, "qwink_finish_reason": reason}
        measured = timings | {"origins": origins | {"encode": "reused"}, "notes": ["task locate"]}
        chunks: list[dict[str, Any]] = [
            {"choices": [{"delta": {"role": "assistant"}}], "qwink": {"stage": "prefill"}},
            {"choices": [{"delta": {"content": text}}]},
            {"choices": [{"delta": {}, **finish}]},
            {"choices": [], "usage": usage, "timings": measured},
        ]
        body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)

        def answer(route: Route) -> None:
            route.fulfill(
                status=200, content_type="text/event-stream", body=f"{body}data: [DONE]\n\n"
            )

        self.page.route("**/v1/chat/completions", answer)

    def shoot(self, name: str) -> None:
        """With QWINK_SCREENSHOTS=1, write a screenshot for docs/."""
        if os.environ.get("QWINK_SCREENSHOTS"):
            SHOTS.mkdir(exist_ok=True)
            self.page.mouse.move(2, 2)
            self.page.screenshot(path=SHOTS / f"{name}.png", animations="disabled")


def file_of(image: PIL.Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def line(text: str = "Total 42.50") -> bytes:
    """A picture of one printed line, which nano can read."""
    image = PIL.Image.new("RGB", (256, 64), "white")
    font = PIL.ImageFont.load_default(28)
    PIL.ImageDraw.Draw(image).text((20, 14), text, "black", font)
    return file_of(image)


def receipt() -> bytes:
    """The receipt of the examples."""
    return (ROOT / "examples" / "receipt-line.png").read_bytes()


def shapes() -> bytes:
    """A picture of three coloured shapes."""
    scale = 2
    image = PIL.Image.new("RGB", (640 * scale, 420 * scale), "#eee7da")
    draw = PIL.ImageDraw.Draw(image)

    def at(*numbers: int) -> tuple[int, ...]:
        return tuple(scale * number for number in numbers)

    draw.rectangle(at(0, 300, 640, 420), "#d8c7a8")
    draw.ellipse(at(60, 90, 270, 320), "#d3473d")
    draw.rectangle(at(320, 160, 470, 330), "#2f6db3")
    draw.polygon([at(540, 140), at(480, 330), at(610, 330)], "#e2a52b")
    return file_of(image.resize((640, 420), PIL.Image.Resampling.LANCZOS))
