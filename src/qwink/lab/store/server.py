"""A real Redis server for measurements and tests, which can be killed, stopped and filled."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from qwink.errors import OptionError

_START_S = 20.0


def program() -> str:
    """The path of the server. Raises OptionError if there is none."""
    for name in ("redis-server", "valkey-server", "/usr/bin/redis-server"):
        path = shutil.which(name)
        if path is not None:
            return path
    raise OptionError("there is no redis-server; on Debian: sudo apt install redis-server")


class RedisServer:
    """A server at 127.0.0.1, without persistence. A context manager, which kills it."""

    def __init__(self, folder: Path, options: Sequence[str] = (), tls: bool = False) -> None:
        """`options` are those of the command line; with `tls`, they name its certificate.

        Raises OptionError if the program is missing.
        """
        self._program, self._folder, self._options = program(), folder, options
        with socket.create_server(("127.0.0.1", 0)) as found:
            self.port = found.getsockname()[1]
        self._ports = ["--port", "0", "--tls-port"] if tls else ["--port"]
        self.url = f"{'rediss' if tls else 'redis'}://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it, empty, at the same port, and wait until it listens."""
        command = [self._program, *self._ports, str(self.port), "--bind", "127.0.0.1"]
        command += ["--save", "", "--appendonly", "no", "--dir", str(self._folder)]
        self._process = subprocess.Popen(
            [*command, *self._options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + _START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise OptionError(f"{self._program} does not start") from None
                time.sleep(0.01)

    def kill(self) -> None:
        """End it as `kill -9` does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Stop it: it keeps its connections, and its system accepts new ones, but it is silent."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> RedisServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
