"""The Chinese pages have the structure and code of the English ones; their commands are valid."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from qwink.cli import app
from qwink.export.recipe import RECIPES

ROOT = Path(__file__).parent.parent
ENGLISH = ("README.md", "docs/quickstart.md")
PAGES = tuple(name for page in ENGLISH for name in (page, page.replace(".md", ".zh.md")))


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def blocks(name: str) -> list[tuple[str, str]]:
    """Language and code of each fenced block, without comments, which are translated."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", read(name), re.DOTALL | re.MULTILINE)
    return [(language, re.sub(r" *# .*", "", code)) for language, code in found]


def commands(name: str) -> list[list[str]]:
    """The shell commands in blocks of commands and in console blocks with output."""
    lines = []
    for language, code in blocks(name):
        entered = code.splitlines()
        if language == "console":
            entered = [line[2:] for line in entered if line.startswith("$ ")]
        elif language != "sh":
            continue
        lines += [shlex.split(line) for line in entered if line]
    return lines


@pytest.mark.parametrize("page", ENGLISH)
def test_both_languages_have_the_same_code(page: str) -> None:
    assert blocks(page)
    assert blocks(page) == blocks(page.replace(".md", ".zh.md"))


@pytest.mark.parametrize("page", ENGLISH)
def test_both_languages_have_the_same_sections_tables_and_links(page: str) -> None:
    def shape(name: str) -> tuple[list[str], int, set[str]]:
        text = re.sub(r"^```.*?^```$", "", read(name), flags=re.DOTALL | re.MULTILINE)
        links = {target.split("#")[0] for target in re.findall(r"\]\(([^)\s]+)", text)}
        links = {re.sub(r"(\.zh)?\.md$", "", link) for link in links if "images/" not in link}
        headings = re.findall(r"^(#+) ", text, re.MULTILINE)
        return headings, len(re.findall(r"^\|", text, re.MULTILINE)), links

    english, chinese = shape(page), shape(page.replace(".md", ".zh.md"))
    assert english[:2] == chinese[:2]
    assert english[2] <= chinese[2]


@pytest.mark.parametrize("page", PAGES)
def test_links_within_lead_to_a_heading(page: str) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", read(page)):
        text = ((ROOT / page).parent / target).read_text("utf-8")
        headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        # GitHub's rule for anchors.
        anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}
        assert anchor in anchors, f"{page}: {target}#{anchor}"


@pytest.mark.parametrize("page", [*PAGES, "docs/choosing.md"])
def test_commands_are_valid(page: str) -> None:
    """Commands and options exist and accept the values shown. Nothing is run."""
    group: Any = typer.main.get_command(app)
    targets = set(re.findall(r"^([\w-]+):", read("Makefile"), re.MULTILINE))
    for program, *arguments in commands(page):
        if program == "make":
            assert set(arguments) <= targets
        elif program == "qwink":
            command = group
            while hasattr(command, "commands"):
                name, *arguments = arguments
                command = command.commands[name]
            if ">" in arguments:
                arguments = arguments[: arguments.index(">")]
            parsed = command.make_context(name, arguments, resilient_parsing=False).params
            for recipe in [parsed.get("recipe")] if isinstance(parsed.get("recipe"), str) else []:
                assert recipe in RECIPES
        else:
            assert program in ("pip", "export", "source", "python3"), program
