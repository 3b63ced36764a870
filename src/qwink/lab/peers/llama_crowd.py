"""llama.cpp's server: parallel slots with continuous batching."""

from __future__ import annotations

import base64
import ctypes
import json
import signal
import subprocess
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import llama_cpp

from qwink.lab.peers.base import serve

CONTEXT = 1024  # tokens of each slot
PORT = 18093
WAIT_S = 120
PR_SET_PDEATHSIG = 1  # of Linux


class LlamaCrowd:
    """`model` and `projector` are GGUF files. `running`: slots of the server."""

    def __init__(self, model: str, projector: str, threads: int, running: int) -> None:
        folder = Path(llama_cpp.__file__).parent / "lib"
        self._running = running
        self._process = subprocess.Popen(
            [
                *(folder / "llama-server", "--model", model, "--mmproj", projector),
                *("--threads", str(threads), "--threads-batch", str(threads)),
                *("--parallel", str(running), "--ctx-size", str(running * CONTEXT)),
                *("--cont-batching", "--flash-attn", "on", "--no-webui"),
                *("--cache-ram", "0", "--host", "127.0.0.1", "--port", str(PORT)),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=_end_with_parent,
        )
        self._wait()

    def versions(self) -> dict[str, str]:
        return {"llama-cpp-python": llama_cpp.__version__}

    def answer_all(self, pictures: list[bytes], question: str, num_tokens: int) -> list[int]:
        def ask(picture: bytes) -> int:
            url = f"data:image/jpeg;base64,{base64.b64encode(picture).decode()}"
            parts = [
                {"type": "image_url", "image_url": {"url": url}},
                {"type": "text", "text": question},
            ]
            body = {
                "messages": [{"role": "user", "content": parts}],
                "max_tokens": num_tokens,
                "temperature": 0,
                "ignore_eos": True,
                "cache_prompt": False,
            }
            found = self._call("/v1/chat/completions", json.dumps(body).encode())
            return int(found["usage"]["completion_tokens"])

        with ThreadPoolExecutor(self._running) as pool:
            return list(pool.map(ask, pictures))

    def _wait(self) -> None:
        deadline = time.monotonic() + WAIT_S
        while True:
            if self._process.poll() is not None:
                raise ValueError(f"llama-server ended with status {self._process.returncode}")
            try:
                self._call("/health", None)
                return
            except urllib.error.URLError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _call(self, path: str, body: bytes | None) -> dict[str, Any]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{PORT}{path}", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=3600) as reply:
            found: dict[str, Any] = json.load(reply)
            return found


def _end_with_parent() -> None:
    """This process is killed, not ended, when it is done with; the server must not outlive it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    serve(LlamaCrowd)
