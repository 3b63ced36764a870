"""What a server still computes for a client that has left, in CPU seconds of its process."""

from __future__ import annotations

import base64
import io
import json
import os
import time
from pathlib import Path
from typing import Any

import PIL.Image
import pytest

from tests.server.process import PATIENCE_S, Serve, Server

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").is_file(), reason="CPU seconds of a process are read from /proc"
)
SIDE, COUNT = 8000, 100  # decoding one takes some 0.4 CPU seconds, all of them 40
MOST_CPU_S = 4.0


def cpu_seconds(server: Server) -> float:
    """Of all threads since the process began."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_until_idle(server: Server) -> float:
    """The CPU seconds when no more are added."""
    deadline = time.monotonic() + PATIENCE_S
    before = cpu_seconds(server)
    while True:
        time.sleep(0.5)
        now = cpu_seconds(server)
        if now - before < 0.02:
            return now
        assert time.monotonic() < deadline
        before = now


def body(equal: bool) -> bytes:
    """64 MiB of pictures of 64 megapixels: little to send, much to decode."""
    file = io.BytesIO()
    PIL.Image.new("L", (SIDE, SIDE), 255).save(file, "PNG")
    room = (63 << 20) * 3 // 4 // COUNT - len(file.getvalue())
    parts: list[Any] = []
    for number in range(COUNT):
        padding = bytes([0 if equal else number]) * room
        url = base64.b64encode(file.getvalue() + padding).decode()
        url = f"data:image/png;base64,{url}"
        parts.append({"type": "image_url", "image_url": {"url": url}})
    turn = {"role": "user", "content": parts}
    fields = {"model": "tiny", "messages": [turn], "max_tokens": 1, "max_pixels": 4096}
    return json.dumps(fields | {"min_pixels": 1024}).encode()


@pytest.mark.slow
@pytest.mark.parametrize("equal", [True, False])
def test_little_is_computed_for_a_client_that_has_left(serve: Serve, equal: bool) -> None:
    server = serve().wait_ready()
    content = body(equal)
    assert (62 << 20) < len(content) < (64 << 20)
    with server.connect() as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(content)
        )
        connection.sendall(content)
        time.sleep(1)
        left = cpu_seconds(server)
    spent = wait_until_idle(server) - left
    assert spent < MOST_CPU_S
    statuses: list[int] = []

    def logged() -> list[int]:
        statuses[:] = [line["status"] for line in server.requests() if line["method"] == "POST"]
        return statuses

    server.wait_until(logged)  # the log follows the answer
    assert statuses == [499] or (equal and statuses == [200])
    assert server.stop() == 0
