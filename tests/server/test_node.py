"""The official Node client. Set QWINK_TEST_NODE to a folder where `npm install openai` was run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.server.process import Server, data_url, png

SCRIPT = Path(__file__).with_name("client.mjs")
FOLDER = os.environ.get("QWINK_TEST_NODE", "")


@pytest.mark.skipif(not FOLDER or not shutil.which("node"), reason="needs Node and QWINK_TEST_NODE")
def test_node_client(server: Server, tmp_path: Path) -> None:
    script = tmp_path / "client.mjs"
    shutil.copy(SCRIPT, script)
    (tmp_path / "node_modules").symlink_to(Path(FOLDER, "node_modules").resolve())
    command = ["node", str(script), server.address, data_url(png(1))]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    output = json.loads(ran.stdout)
    assert output["text"] == output["streamed"]
    assert output["usage"]["completion_tokens"] == 8
    assert output["timings"]["total_ms"] > 0
    assert output["refused"] == {"status": 400, "param": "n"}
