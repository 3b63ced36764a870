"""A real nginx in front of a server, with a given location."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "deploy" / "nginx.conf"
REPLICAS = EXAMPLE.with_name("nginx-replicas.conf")
PATIENCE_S = 30.0

_CONFIGURATION = """
daemon off; worker_processes 1; pid FOLDER/pid; error_log FOLDER/error.log; USER
events {}
http {
  access_log off;
  client_body_temp_path FOLDER/body; proxy_temp_path FOLDER/proxy; fastcgi_temp_path FOLDER/a;
  uwsgi_temp_path FOLDER/b; scgi_temp_path FOLDER/c;
  HTTP
}
"""
_SERVER = "server { listen 127.0.0.1:PORT; LOCATION }"


def nginx() -> str:
    """The program; the test is skipped without it, or fails where it is required (.ci/run)."""
    path = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    if path is None:
        message = "no nginx for the tests of deploy/; on Debian: sudo apt install nginx-light"
        if os.environ.get("QWINK_TEST_NGINX") == "required":
            pytest.fail(message)
        pytest.skip(message)
    return path


def example(address: str) -> str:
    """deploy/nginx.conf, for a server that listens at `address`."""
    return re.sub(r"http://127\.0\.0\.1:8000", address, EXAMPLE.read_text("utf-8"))


def replicas_example(*addresses: str) -> str:
    """deploy/nginx-replicas.conf, for two servers that listen at `addresses`."""
    text = REPLICAS.read_text("utf-8").replace("listen 8000;", "listen 127.0.0.1:PORT;")
    for number, address in enumerate(addresses, 1):
        text = text.replace(f"127.0.0.1:800{number}", address.removeprefix("http://"))
    return text


@contextmanager
def proxy(location: str, folder: Path, http: str = _SERVER) -> Iterator[str]:
    """The address of an nginx with this location, or with this content of its http block."""
    program = nginx()
    folder.mkdir(parents=True, exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    text = (
        _CONFIGURATION.replace("HTTP", http)
        .replace("LOCATION", location)
        .replace("PORT", str(port))
    )
    # Started by root, it would become a user who cannot read the folder.
    text = text.replace("USER", "user root;" if os.geteuid() == 0 else "")
    file = folder / "nginx.conf"
    file.write_text(text.replace("FOLDER", str(folder)))
    command = [program, "-c", str(file), "-p", str(folder), "-e", str(folder / "error.log")]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            assert process.poll() is None, (folder / "error.log").read_text()
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert time.monotonic() < deadline, "nginx does not listen"
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
