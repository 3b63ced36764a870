"""The harness's side of a peer's process."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.peers.contenders import Contender

ROOT = Path(__file__).resolve().parents[2]


class PeerFailed(Exception):
    """A peer's process said so, or died."""


class Worker:
    """A peer in a process of its own, stopped whenever it is not its turn.

    A stopped process cannot spin: the thread pools of some peers do, long after the last answer.
    """

    def __init__(self, contender: Contender, threads: int) -> None:
        """Starts loading; raises PeerFailed when the process cannot be started."""
        self.contender = contender
        self.versions: dict[str, str] | None = None
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        options = json.dumps({**contender.options, "threads": threads})
        command = [contender.python, "-m", f"benchmarks.peers.{contender.adapter}", options]
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": str(threads),
            "HF_HUB_OFFLINE": "1",
        }
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                env=environment,
            )
        except OSError as error:
            self._log.close()
            raise PeerFailed(f"{contender.name}: {error}") from None

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self) -> None:
        """Until the model is loaded."""
        if self.versions is None:
            self.versions = self._receive()["versions"]

    def ask(self, picture: bytes, question: str, num_tokens: int) -> dict[str, Any]:
        """The figures of one answer. Raises PeerFailed."""
        self.wait()
        request = {
            "picture": base64.b64encode(picture).decode(),
            "question": question,
            "num_tokens": num_tokens,
        }
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:
            pass  # it died: its last words come with the next read
        return self._receive()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)  # returns when it stands still

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        reply: dict[str, Any] = json.loads(line) if line else {"error": self._last_words()}
        if "error" in reply:
            raise PeerFailed(f"{self.contender.name}: {reply['error']}")
        return reply

    def _last_words(self) -> str:
        self._process.wait()
        self._log.seek(0)
        lines = self._log.read().strip().splitlines() or ["no message"]
        return f"exit status {self._process.returncode}: {lines[-1]}"
