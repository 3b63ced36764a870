"""Pages of several lines on the command line, with nano and in strips by number."""

from __future__ import annotations

import json
from pathlib import Path

import PIL.Image
import pytest

from tests.conftest import RunQwink

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def two_lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lines of two examples, one above the other."""
    path = tmp_path_factory.mktemp("pages") / "two-lines.png"
    pictures = [
        PIL.Image.open(ROOT / "examples" / name).convert("RGB")
        for name in ("receipt-line.png", "sign.png")
    ]
    page = PIL.Image.new("RGB", (256, sum(one.height for one in pictures)), "white")
    top = 0
    for one in pictures:
        page.paste(one, (0, top))
        top += one.height
    page.save(path)
    return path


def test_nano_reads_all_lines(qwink: RunQwink, two_lines: Path, tmp_path: Path) -> None:
    ran = qwink("ask", two_lines, "-q", "What does it say?", home=tmp_path, QWINK_MODEL="")
    assert ran.out == "Total 42.50\nExit 7B\n", ran.err
    whole = qwink(
        *("ask", two_lines, "-q", "What does it say?", "--strips", "off", "--json"),
        home=tmp_path,
        QWINK_MODEL="",
    )
    assert whole.code == 0, whole.err
    assert not [note for note in json.loads(whole.out)["timings"]["notes"] if "strips" in note]


@pytest.mark.parametrize(("command", "value"), [("ask", "all"), ("batch", "9")])
def test_a_wrong_number_is_refused(
    qwink: RunQwink, two_lines: Path, command: str, value: str
) -> None:
    ran = qwink(command, two_lines, "-q", "Read the text.", f"--strips={value}")
    assert ran.code == 2
    assert "use auto, off, or 2 to 8" in ran.err
    assert "Traceback" not in ran.err


def test_the_batch_reads_in_strips(qwink: RunQwink, two_lines: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    ran = qwink(
        *("batch", two_lines, "-q", "What does it say?", "--out", out),
        home=tmp_path,
        QWINK_MODEL="",
    )
    assert ran.code == 0, ran.err
    assert json.loads(out.read_text("utf-8"))["answer"] == "Total 42.50\nExit 7B"
