"""A server process to measure: `qwink serve`, of this or another checkout."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from qwink.errors import QwinkError
from qwink.settings import environment

_PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What the server process takes, `at` seconds after its life began."""

    at: float
    rss_mib: int
    threads: int


class ServerProcess:
    """`qwink serve`, which can be started again on the same port.

    Its output goes to files in `folder`. `source` is the folder that it imports qwink from, None
    for this process's. `life` counts the starts; `up` is whether it answers.
    """

    def __init__(self, arguments: Sequence[str], folder: Path, source: str | None = None) -> None:
        self._arguments, self._folder = tuple(arguments), folder
        self._environment = {**environment(), **({"PYTHONPATH": source} if source else {})}
        self._process: subprocess.Popen[bytes] | None = None
        self.life, self.port, self.up = 0, 0, False
        self.exit_codes: list[int] = []
        self.began = 0.0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def logs(self) -> list[Path]:
        return sorted(self._folder.glob("*.log"))

    async def start(self) -> None:
        """Start a process and wait until it is ready. Raises QwinkError if it ends instead."""
        out, log = (self._folder / f"{self.life:03}.{kind}" for kind in ("out", "log"))
        command = [sys.executable, "-m", "qwink", "serve", "--port", str(self.port)]
        with out.open("wb") as printed, log.open("wb") as errors:
            self._process = subprocess.Popen(
                [*command, *self._arguments],
                stdout=printed,
                stderr=errors,
                env=self._environment,
            )
        deadline = time.monotonic() + _PATIENCE_S
        async with httpx.AsyncClient(trust_env=False) as http:
            while not await self._ready(http, out):
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self._process.kill()
                    raise QwinkError(f"the server does not start: {log.read_text()[-500:]}")
                await asyncio.sleep(0.1)
        self.life += 1
        self.began, self.up = time.monotonic(), True

    async def _ready(self, http: httpx.AsyncClient, out: Path) -> bool:
        if found := re.search(r"listening on http://127\.0\.0\.1:(\d+)", out.read_text()):
            self.port = int(found[1])
            try:
                return (await http.get(f"{self.address}/ready")).status_code == 200
            except httpx.HTTPError:
                return False
        return False

    async def end(self, number: signal.Signals) -> int:
        """Send a signal and wait for the process to end. Returns its exit code."""
        assert self._process is not None
        self.up = False
        self._process.send_signal(number)
        code = await asyncio.to_thread(self._process.wait, _PATIENCE_S)
        self.exit_codes.append(code)
        return code

    def kill(self) -> None:
        """Whatever happened before."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def sample(self) -> Sample | None:
        """Memory and threads now; None if the process is not there."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return None
        rss = re.search(r"^VmRSS:\s+(\d+)", status, re.M)
        threads = re.search(r"^Threads:\s+(\d+)", status, re.M)
        if rss is None or threads is None:  # it has just ended
            return None
        return Sample(round(time.monotonic() - self.began, 1), int(rss[1]) >> 10, int(threads[1]))
