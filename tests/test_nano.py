"""Tests of nano, the built-in model."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.conftest import RunQwink

ROOT = Path(__file__).parent.parent


def test_nano_is_the_default_model(qwink: RunQwink, picture: Path, tmp_path: Path) -> None:
    ran = qwink("ask", picture, "--json", "--seed", 1, home=tmp_path, QWINK_MODEL="")
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document["model"] == "nano"
    assert document["text"].strip()


def test_hint_is_shown_on_terminals_only(qwink: RunQwink, picture: Path, tmp_path: Path) -> None:
    ran = qwink("ask", picture, "-q", "Hi", home=tmp_path, QWINK_MODEL="")
    assert ran.code == 0, ran.err
    assert "hint:" not in ran.err  # stderr is not a terminal here


def test_nano_is_listed(qwink: RunQwink) -> None:
    assert "nano" in [
        model["name"] for model in json.loads(qwink("models", "--json").out)["models"]
    ]


def test_readme_shows_real_output(qwink: RunQwink, tmp_path: Path) -> None:
    """The README's Python block runs, and its console block shows the real answer."""
    readme = (ROOT / "README.md").read_text("utf-8")
    code = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)[0]
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "QWINK_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    words = ("Total 42.50", "A red circle.", "Red.", "A circle.")
    assert [word for word in words if word not in ran.stdout] == []
    shown = re.findall(
        r"\$ qwink ask (\S+) -q \"(.*?)\" --timings\n(.*?)\nstage ", readme, re.DOTALL
    )[0]
    asked = qwink("ask", ROOT / shown[0], "-q", shown[1], home=tmp_path, QWINK_MODEL="")
    assert asked.out.strip() == shown[2]
