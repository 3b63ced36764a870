"""The Chinese pages keep up with the English ones, and what both show can be typed."""

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
    """Language and code of each fenced block, without comments: those are translated."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", read(name), re.DOTALL | re.MULTILINE)
    return [(language, re.sub(r" *# .*", "", code)) for language, code in found]


def commands(name: str) -> list[list[str]]:
    """What is typed into a shell: of blocks of commands, and of consoles with output."""
    lines = []
    for language, code in blocks(name):
        typed = code.splitlines()
        if language == "console":
            typed = [line[2:] for line in typed if line.startswith("$ ")]
        elif language != "sh":
            continue
        lines += [shlex.split(line) for line in typed if line]
    return lines


@pytest.mark.parametrize("page", ENGLISH)
def test_both_show_the_same_code_in_the_same_order(page: str) -> None:
    assert blocks(page)
    assert blocks(page) == blocks(page.replace(".md", ".zh.md"))


@pytest.mark.parametrize("page", ENGLISH)
def test_both_have_the_same_sections_tables_and_links(page: str) -> None:
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
        # As GitHub makes them.
        anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}
        assert anchor in anchors, f"{page}: {target}#{anchor}"


@pytest.mark.parametrize("page", [*PAGES, "docs/choosing.md"])
def test_commands_can_be_typed(page: str) -> None:
    """Commands and options exist, and take the values shown; nothing is run."""
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
