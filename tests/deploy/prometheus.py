"""A real Prometheus that scrapes given servers."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

EXAMPLE = Path(__file__).parents[2] / "deploy" / "prometheus.yml"
PATIENCE_S = 30.0


class Prometheus:
    """A running one."""

    def __init__(self, address: str) -> None:
        self._http = httpx.Client(
            base_url=f"{address}/api/v1/", trust_env=False, timeout=PATIENCE_S
        )

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The result now. Fails if Prometheus finds an error in the expression."""
        document = self._http.get("query", params={"query": expression}).json()
        assert document["status"] == "success", document
        result: list[dict[str, Any]] = document["data"]["result"]
        return result

    def wait_for(self, expression: str) -> None:
        """Until the expression has a result."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.query(expression):
            assert time.monotonic() < deadline, f"no result: {expression}"
            time.sleep(0.1)

    def close(self) -> None:
        self._http.close()


def program() -> str:
    """The program; the test is skipped without it, or fails where it is required (.ci/run)."""
    path = shutil.which("prometheus")
    if path is None:
        message = "no prometheus for the tests of deploy/; on Debian: sudo apt install prometheus"
        if os.environ.get("QWINK_TEST_PROMETHEUS") == "required":
            pytest.fail(message)
        pytest.skip(message)
    return path


@contextmanager
def prometheus(target: str, folder: Path) -> Iterator[Prometheus]:
    """With deploy/prometheus.yml, for a server at host:port, scraped twice a second."""
    command = program()
    configuration = yaml.safe_load(EXAMPLE.read_text("utf-8"))
    configuration["global"]["scrape_interval"] = "500ms"
    configuration["global"]["scrape_timeout"] = "500ms"
    (job,) = configuration["scrape_configs"]
    (job["static_configs"][0]["targets"],) = [[target]]
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(configuration))
    with socket.create_server(("127.0.0.1", 0)) as found:
        address = f"127.0.0.1:{found.getsockname()[1]}"
    log = folder / "log"
    flags = [
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    with log.open("wb") as errors:
        process = subprocess.Popen([command, *flags], stdout=errors, stderr=errors)
    running = Prometheus(f"http://{address}")
    try:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            assert process.poll() is None, log.read_text()
            try:
                if httpx.get(f"http://{address}/-/ready", trust_env=False).status_code == 200:
                    break
            except httpx.HTTPError:
                pass
            assert time.monotonic() < deadline, "prometheus is not ready"
            time.sleep(0.05)
        yield running
    finally:
        running.close()
        process.terminate()
        process.wait(PATIENCE_S)
