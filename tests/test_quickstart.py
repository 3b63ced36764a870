"""The commands and code of README and quickstart give the output shown, with nano."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import RunQwink
from tests.server.process import Server
from tests.test_translations import blocks

ROOT = Path(__file__).parent.parent
PAGE = "docs/quickstart.md"
PYTHON = [code for language, code in blocks(PAGE) if language == "python"]
CONSOLES = [code for language, code in blocks(PAGE) if language == "console"]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quickstart")


def run(code: str, home: Path) -> list[str]:
    """Run a Python block in the repository's root; returns the lines that it prints."""
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "QWINK_HOME": str(home)}
    ran = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return ran.stdout.splitlines()


def test_questions_get_the_answers_shown(qwink: RunQwink, home: Path) -> None:
    shown = re.findall(r'\$ qwink ask (\S+) -q "(.*)"\n(.*)\n', CONSOLES[0])
    assert len(shown) == 2
    for picture, question, answer in shown:
        asked = qwink("ask", ROOT / picture, "-q", question, home=home, QWINK_MODEL="")
        assert asked.out.strip() == answer


def test_what_timings_show(qwink: RunQwink, home: Path) -> None:
    """All but the times and the kernels, which differ between machines."""
    (console,) = [code for language, code in blocks("README.md") if language == "console"]
    command, *shown = console.splitlines()
    words = shlex.split(command.removeprefix("$ qwink "))
    words = [str(ROOT / word) if word.startswith("examples/") else word for word in words]
    ran = qwink(*words, home=home, QWINK_MODEL="")
    lines = [line for line in ran.err.splitlines() if not line.startswith("qwink:")]

    def fixed(lines: list[str]) -> list[str]:
        without = (
            re.sub(r"\d+\.\d+( tokens/s)?|kernels \w+|in \d+ steps", "", line) for line in lines
        )
        return [re.sub(r"\s+", " ", line).strip() for line in without]

    assert fixed([*ran.out.strip().splitlines(), *lines]) == fixed(shown)


def test_python_block(home: Path) -> None:
    assert run(PYTHON[0], home) == ["Exit 7B", "A red circle.", "Red."]


@pytest.fixture
def server(home: Path, tmp_path: Path) -> Iterator[Server]:
    command = [sys.executable, "-m", "qwink", "serve", "--model", "nano", "--port", "0"]
    running = Server(command, {**os.environ, "QWINK_HOME": str(home)}, tmp_path / "log")
    try:
        yield running.wait_ready()
    finally:
        running.stop()


def test_openai_block(server: Server, home: Path) -> None:
    code = PYTHON[1].replace("http://127.0.0.1:8000", server.address)
    assert run(f"import warnings; warnings.simplefilter('ignore')\n{code}", home) == ["Exit 7B"]


def test_what_verify_shows(qwink: RunQwink, home: Path) -> None:
    """Labels and exact's answers equal those shown. Figures differ between processors."""
    command, *shown = CONSOLES[1].splitlines()
    ran = qwink(*command.split()[2:], home=home)
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()

    def labels(lines: list[str]) -> list[str]:
        return [line.split("  ")[0] for line in lines]

    split = next(index for index, line in enumerate(shown) if line.startswith("worst first"))
    assert labels(lines[:split]) == labels(shown[:split])
    for line in shown[split + 1 : -2]:
        name, answer = re.split(r"  +", line)[:2]
        assert any(re.match(rf"{name} +{re.escape(answer)} ", found) for found in lines), line
    assert "quality answers as exact does on" in lines[-2]
    assert "small answers as exact does on" in lines[-1]
