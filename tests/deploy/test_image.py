"""The image's steps, run without Docker into a clean folder, and what they make."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import pytest

from qwink.native import capabilities
from tests.deploy.dockerfile import Builder, parse
from tests.server.process import Server, ask, user

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"


def test_the_image_runs_as_a_plain_user_without_a_compiler() -> None:
    build, final = parse(DOCKERFILE.read_text("utf-8"))
    words = [word for word, _ in final.steps]
    assert words.index("USER") > words.index("COPY")
    assert dict(final.steps)["USER"] not in ("root", "0")
    assert not any("gcc" in rest or "apt-get" in rest for _, rest in final.steps)
    copied = {name for word, rest in build.steps if word == "COPY" for name in rest.split()}
    assert {"hatch_build.py", "src", "pyproject.toml"} <= copied
    kept = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    assert {f"!{name}" for name in copied - {"./", "src"}} <= set(kept)


@pytest.mark.skipif(
    os.environ.get("QWINK_TEST_DEPLOY") is None,
    reason="installs qwink from the package index; make test-deploy runs it",
)
def test_the_steps_make_a_server_with_fast_kernels(tmp_path: Path) -> None:
    stages = parse(DOCKERFILE.read_text("utf-8"))
    builder = Builder(ROOT, tmp_path / "build")
    builder.build(stages)
    asked = builder.calls.read_text("utf-8")
    assert "gcc" in asked
    assert "--uid 10001" in asked
    environment = {"PATH": f"{builder.root}/opt/qwink/bin:/usr/bin:/bin"} | {
        name: value for name, value in builder.environment.items() if name != "PATH"
    }
    home = Path(environment["QWINK_HOME"])
    assert home.is_relative_to(builder.root)
    home.mkdir(parents=True)
    command = [f"{builder.root}/opt/qwink/bin/qwink", "serve", "--port", "0"]
    server = Server(command, environment | {"QWINK_HOST": "127.0.0.1"}, tmp_path / "log")
    server.model = "nano"
    try:
        server.wait_ready()
        if sys.platform == "linux" and platform.machine() == "x86_64":
            assert f"kernels on this processor: {capabilities().kernels}" in server.printed[1]
        with server.client() as client:
            assert ask(client, user("Hi"), model="nano").choices
    finally:
        assert server.stop() == 0
