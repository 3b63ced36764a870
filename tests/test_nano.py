"""nano, the model that comes with qwink, through the command line as a new user meets it.

Everything that needs its weights is here. Until they are in src/qwink/assets/nano these tests are
skipped, and pytest's summary says so.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import qwink as package
from tests.conftest import RunQwink

NANO = Path(package.__file__).parent / "assets" / "nano"

pytestmark = pytest.mark.skipif(
    not (NANO / "config.json").is_file(), reason="nano's weights are not in src/qwink/assets/nano"
)


def test_nano_is_the_default_model(qwink: RunQwink, picture: Path, tmp_path: Path) -> None:
    ran = qwink("ask", picture, "--json", "--seed", 1, home=tmp_path, QWINK_MODEL="")
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document["model"] == "nano"
    assert document["text"].strip()


def test_hint_is_for_people_only(qwink: RunQwink, picture: Path, tmp_path: Path) -> None:
    ran = qwink("ask", picture, "-q", "Hi", home=tmp_path, QWINK_MODEL="")
    assert ran.code == 0, ran.err
    assert "hint:" not in ran.err  # stderr is no terminal here


def test_nano_is_listed(qwink: RunQwink) -> None:
    assert "nano" in [
        model["name"] for model in json.loads(qwink("models", "--json").out)["models"]
    ]
