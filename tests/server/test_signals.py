"""SIGTERM and SIGINT at any moment of a server's life end it with exit code 0."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.server.process import PATIENCE_S, Serve, Server

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").is_file(), reason="handlers of signals are seen in /proc"
)

# Loading takes for ever, and does not ask whether it is still wanted.
STUCK = """
import time
from qwink.server import run
run.load = lambda *arguments, **options: time.sleep(600)
from qwink.cli import main
main()
"""


def handles_signals(server: Server) -> bool:
    """Whether the process has a handler of its own for SIGTERM. Before, no Python code can help."""
    status = Path(f"/proc/{server.process.pid}/status").read_text("utf-8")
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def wait_for_handler(server: Server) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not handles_signals(server):
        assert server.process.poll() is None, server.log
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize("delay", [0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0, 1.3, 1.6, 2, 2.5])
def test_at_any_moment_of_the_start(serve: Serve, tmp_path: Path, delay: float) -> None:
    number = signal.SIGINT if int(delay * 20) % 2 else signal.SIGTERM
    home = tmp_path / "home"
    server = serve(QWINK_HOME=str(home))  # which exports the model first
    wait_for_handler(server)
    time.sleep(delay)
    server.process.send_signal(number)
    assert server.wait() == 0, server.log
    assert "Traceback" not in server.log
    assert [path.name for path in (home / "artifacts").glob(".*")] == []


@pytest.mark.parametrize("num_signals", [1, 2, 5])
def test_while_a_model_is_stuck_in_loading(serve: Serve, num_signals: int) -> None:
    server = serve(code=STUCK)
    assert server.http.get(f"{server.address}/health").status_code == 200
    for _ in range(num_signals):
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
    assert server.wait() == 0, server.log


def test_signals_until_the_very_end(serve: Serve) -> None:
    server = serve().wait_ready()
    while server.process.poll() is None:
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.002)
    assert server.wait() == 0, server.log


def test_the_command_handles_signals_before_it_imports_anything() -> None:
    code = (
        "import sys; sys.argv = ['qwink', 'serve']; sys.modules['qwink.cli'] = None\n"
        "import signal, qwink.__main__ as program\n"
        "try: program.main()\n"
        "except ImportError: pass\n"
        "assert callable(signal.getsignal(signal.SIGTERM))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_body_that_is_arriving_gets_503(serve: Serve) -> None:
    server = serve().wait_ready()
    with server.connect() as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
        )
        server.wait_until(lambda: server.metric("qwink_active ") == 0)
        server.process.send_signal(signal.SIGTERM)
        response = b"".join(iter(lambda: connection.recv(1 << 16), b"")).lower()
    head, _, body = response.partition(b"\r\n\r\n")
    assert b" 503 " in head.split(b"\r\n")[0]
    assert b"\r\nretry-after: 5" in head
    assert b'"shutting_down"' in body
    assert server.wait() == 0
    assert [line["status"] for line in server.requests() if line["method"] == "POST"] == [503]
