"""The page of the Python API is current and complete, and its examples print what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import qwink
from qwink import errors
from scripts import make_api_docs

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "api.md").read_text("utf-8")


def test_the_page_is_current() -> None:
    script = ROOT / "scripts" / "make_api_docs.py"
    ran = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("name", sorted(set(qwink.__all__) - {"QwinkError", "SamplingParams"}))
def test_each_public_name_has_a_section(name: str) -> None:
    assert re.search(rf"^##+ {name}$", PAGE, re.MULTILINE)


def test_each_error_is_listed() -> None:
    names = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert names == set(re.findall(r"^ *- `(\w+)`: [A-Z]", PAGE, re.MULTILINE))


def test_each_public_method_is_listed() -> None:
    others = {"split_options", "stream_messages", "prepare", "prepare_steps"}  # for qwink's parts
    for name in ("VLM", "Conversation"):
        cls = getattr(qwink, name)
        methods = {key for key, value in vars(cls).items() if callable(value) and key[0] != "_"}
        assert methods - others == set(make_api_docs.METHODS[name])


def test_a_field_without_a_docstring_is_an_error() -> None:
    with pytest.raises(SystemExit, match=r"Undocumented\.second lacks a docstring"):
        make_api_docs.field_docs(Undocumented)


class Undocumented:
    first: int
    """Has one."""
    second: int


def test_examples_print_what_they_say(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    blocks = [block for block in blocks if "->" not in block.splitlines()[-1]]
    expected = re.findall(r"\)  # (.*)$", "\n".join(blocks), re.MULTILINE)
    assert len(expected) >= 8
    (tmp_path / "examples.py").write_text("\nprint()\n".join(blocks), "utf-8")
    ran = subprocess.run(
        [sys.executable, str(tmp_path / "examples.py")],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert [line for line in ran.stdout.splitlines() if line] == expected
