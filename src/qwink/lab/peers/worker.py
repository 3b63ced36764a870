"""A peer's process, as the comparison uses it."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from qwink.lab.peers.contenders import Contender
from qwink.settings import environment

PACKAGE = Path(__file__).resolve().parents[2]


class PeerFailed(Exception):
    """A peer's process reported an error or ended."""


class Worker:
    """A peer's process, stopped by a signal while the others are measured.

    Thread pools of some peers keep spinning after an answer; in a stopped process they cannot.
    """

    def __init__(self, contender: Contender, threads: int) -> None:
        """Starts loading; raises PeerFailed when the process cannot be started."""
        self.contender = contender
        self.versions: dict[str, str] | None = None
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        # A peer's environment must find this package, and no other package beside it.
        self._path = tempfile.TemporaryDirectory(prefix="qwink-peer-")
        Path(self._path.name, PACKAGE.name).symlink_to(PACKAGE, target_is_directory=True)
        paths = [self._path.name, *([contender.packages] if contender.packages else [])]
        options = json.dumps({**contender.options, "threads": threads})
        command = [contender.python, "-m", f"qwink.lab.peers.{contender.adapter}", options]
        variables = {
            **environment(),
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "OMP_NUM_THREADS": str(threads),
            "HF_HUB_OFFLINE": "1",
            **contender.variables,
        }
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                env=variables,
            )
        except OSError as error:
            self._discard()
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
        """Wait until the model is loaded. Raises PeerFailed."""
        if self.versions is None:
            self.versions = self._receive()["versions"]

    def ask(self, picture: bytes, question: str, num_tokens: int) -> dict[str, Any]:
        """The figures of one answer. Raises PeerFailed."""
        return self._send({"picture": _text(picture)}, question, num_tokens)

    def ask_all(self, pictures: Sequence[bytes], question: str, num_tokens: int) -> dict[str, Any]:
        """The figures of answers about all pictures, at once. Raises PeerFailed."""
        return self._send({"pictures": list(map(_text, pictures))}, question, num_tokens)

    def _send(self, asked: dict[str, Any], question: str, num_tokens: int) -> dict[str, Any]:
        self.wait()
        request = {**asked, "question": question, "num_tokens": num_tokens}
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:
            pass  # the process has ended; reading raises the error with its last message
        return self._receive()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)  # returns once the process has stopped

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._discard()

    def _discard(self) -> None:
        self._log.close()
        self._path.cleanup()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        reply: dict[str, Any] = json.loads(line) if line else {"error": self._last_message()}
        if "error" in reply:
            raise PeerFailed(f"{self.contender.name}: {reply['error']}")
        return reply

    def _last_message(self) -> str:
        self._process.wait()
        self._log.seek(0)
        lines = self._log.read().strip().splitlines() or ["no message"]
        return f"exit status {self._process.returncode}: {lines[-1]}"


def _text(picture: bytes) -> str:
    return base64.b64encode(picture).decode()
