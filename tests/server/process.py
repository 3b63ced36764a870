"""Starts server processes for tests, and helpers that build requests."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import PIL.Image

PATIENCE_S = 60.0
SMALL = {"min_pixels": 16_384, "max_pixels": 16_384}  # 16 tokens an image


class Server:
    """A running `qwink serve` process. `model` is the name of its model in requests."""

    model = "tiny"

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self.printed: list[str] = []  # lines on stdout
        # One client for all requests: creating one takes long, because of its SSL context.
        self.http = httpx.Client(timeout=PATIENCE_S, trust_env=False)
        self._address: str | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.printed.append(line)
            found = re.search(r"listening on (http://\S+)", line)
            if found:
                self._address = found[1]

    @property
    def address(self) -> str:
        self.wait_until(lambda: self._address)
        assert self._address is not None
        return self._address

    def wait_until(self, holds: Callable[[], Any]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, "waited too long"
            time.sleep(0.02)

    def wait_ready(self) -> Server:
        self.wait_until(lambda: self.http.get(f"{self.address}/ready").status_code == 200)
        return self

    def client(self, **options: Any) -> openai.OpenAI:
        defaults: dict[str, Any] = {"api_key": "none", "max_retries": 0, "timeout": PATIENCE_S}
        return openai.OpenAI(base_url=f"{self.address}/v1", **defaults | options)

    def metric(self, name: str) -> float:
        """The sum of a metric's samples whose line starts with `name`."""
        lines = self.http.get(f"{self.address}/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))

    def connect(self) -> socket.socket:
        host, port = self.address.removeprefix("http://").split(":")
        return socket.create_connection((host, int(port)), PATIENCE_S)

    def send(self, **fields: Any) -> socket.socket:
        """Send a chat request. The caller reads the response from the connection."""
        body = json.dumps({"model": self.model} | fields).encode()
        connection = self.connect()
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        return connection

    @property
    def log(self) -> str:
        return self._log.read_text()

    def requests(self) -> list[dict[str, Any]]:
        """The log lines of requests. Fails on a line that is not JSON."""
        lines = [json.loads(line) for line in self.log.splitlines()]
        return [line for line in lines if line["event"] == "request"]

    def stop(self) -> int:
        self.process.terminate()
        return self.wait()

    def wait(self) -> int:
        try:
            code = self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
            self._reader.join(5)
            self.http.close()
            if self.process.stdout is not None:
                self.process.stdout.close()
        return code


Serve = Callable[..., Server]


def starter(checkpoint: Path, home: Path, folder: Path) -> Iterator[Serve]:
    servers: list[Server] = []

    def serve(*arguments: object, code: str | None = None, **environment: str) -> Server:
        """`code` is a script to run instead of `-m qwink`; it calls qwink's command line."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("QWINK_")}
        fixed = {"QWINK_HOME": str(home), "QWINK_MODEL": str(checkpoint), "PYTHONUTF8": "1"}
        start = ["-m", "qwink"] if code is None else ["-c", code]
        flags = ["serve", "--port", "0", "--threads", "1", "--no-disk-cache", "--grace", "20"]
        command = [sys.executable, *start, *flags, *map(str, arguments)]
        server = Server(command, inherited | fixed | environment, folder / f"{len(servers)}.log")
        servers.append(server)
        return server

    yield serve
    for server in servers:
        if server.process.poll() is None:
            server.process.kill()
        server.wait()


def png(seed: int, size: int = 64) -> bytes:
    """A PNG of random pixels, `size` by `size`."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size, size, 3), np.uint8)
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def data_url(content: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def image(seed: int, **fields: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data_url(png(seed)), **fields}}


def user(*parts: str | dict[str, Any]) -> Any:
    """A user message made of texts and other content parts."""
    content = [{"type": "text", "text": p} if isinstance(p, str) else p for p in parts]
    return {"role": "user", "content": content}


def ask(client: openai.OpenAI, *messages: Any, **options: Any) -> Any:
    """Request a greedy answer of 6 tokens; pictures take 16 tokens each."""
    defaults: dict[str, Any] = {"model": Server.model, "temperature": 0, "max_tokens": 6}
    extra = SMALL | options.pop("extra_body", {})
    return client.chat.completions.create(
        messages=list(messages), extra_body=extra, **defaults | options
    )
