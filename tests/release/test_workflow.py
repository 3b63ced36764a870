"""The workflow that releases, and what continuous integration builds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from qwink import __version__
from scripts.make_wheels import TARGETS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / ".github/workflows/release.yml").read_text("utf-8")


@pytest.fixture
def jobs() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(TEXT)["jobs"]
    return found


def test_each_wheel_is_tried_on_its_system(jobs: dict[str, Any]) -> None:
    tried = jobs["try"]["strategy"]["matrix"]["include"]
    assert {each["wheel"] for each in tried} == set(TARGETS)


def test_nothing_is_uploaded_that_was_not_tried(jobs: dict[str, Any]) -> None:
    assert jobs["try"]["needs"] == "build"
    assert jobs["upload"]["needs"] == "try"
    assert "refs/tags/" in jobs["upload"]["if"]


def test_the_version_is_written_as_the_workflow_looks_for_it() -> None:
    sought = re.search(r'grep -qxF "(.*)" src/qwink/__init__.py', TEXT)
    assert sought
    line = sought[1].replace('\\"', '"').replace("${GITHUB_REF_NAME#v}", __version__)
    assert line in (ROOT / "src/qwink/__init__.py").read_text("utf-8").splitlines()


@pytest.mark.parametrize("path", [".github/workflows/release.yml", ".ci/run"])
def test_wheels_are_made_by_the_word_of_the_makefile(path: str) -> None:
    assert re.search(r"\bmake (?:test )?wheels\b", (ROOT / path).read_text("utf-8"))
    assert "\nwheels: " in (ROOT / "Makefile").read_text("utf-8")
