"""`qwink verify` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qwink.settings import Settings
from tests.conftest import RunQwink


@pytest.fixture
def home(nano_settings: Settings) -> Path:
    return nano_settings.home


def test_built_in_pictures_and_several_recipes(qwink: RunQwink, home: Path) -> None:
    ran = qwink("verify", "nano", "--recipe", "quality", "--recipe", "small", home=home)
    assert ran.code == 0, ran.err
    assert "12 pictures, compared with exact" in ran.out
    assert "Total 42.50" in ran.out
    *_, first, second = ran.out.splitlines()
    assert "quality answers as exact does on" in first
    assert "small answers as exact does on" in second
    assert "--images" in ran.err  # asks for the user's own pictures


def test_own_pictures_as_a_document(qwink: RunQwink, home: Path, pictures: Path) -> None:
    options = ("--images", pictures, "-q", "What does it say?", "--max-tokens", 20, "--json")
    # verify uses the onnx engine, whichever engine the environment selects.
    torch = {"QWINK_ENGINE": "torch", "QWINK_DTYPE": "float16", "QWINK_DEVICE": "cuda"}
    ran = qwink("verify", "nano", "--recipe", "quality", *options, home=home, **torch)
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert not document["built_in_pictures"]
    assert document["options"]["max_tokens"] == 20
    references = {picture["name"]: picture for picture in document["pictures"]}
    assert references["line-total.png"]["answer"] == "Total 42.50"
    assert references["line-total.png"]["confidence"] > 0.5
    assert references["line-total.png"]["question"] == "What does it say?"
    (recipe,) = document["recipes"]
    assert recipe["recipe"] == "quality"
    assert recipe["verdict"] == "safe"
    assert recipe["num_pictures"] == len(recipe["pictures"]) == 2
    assert 0 < recipe["kl_nats"] < 0.1
    assert all(10 < value < 120 for value in recipe["snr_db_at"].values())
    # Unreadable pictures are reported and left out.
    assert {picture["name"] for picture in document["skipped"]} == {"cut.png", "notes.jpg"}
    assert "skipped" in ran.err
    assert "looks like text" in ran.err


def test_random_weights_get_no_verdict(
    qwink: RunQwink, tiny_checkpoint: tuple[Path, Any], pictures: Path
) -> None:
    ran = qwink("verify", tiny_checkpoint[0], "--images", pictures, "--json")
    assert ran.code == 0, ran.err
    (recipe,) = json.loads(ran.out)["recipes"]
    assert recipe["recipe"] == "balanced"  # the default
    assert recipe["verdict"] == "unknown"


def test_what_cannot_be_done_is_told_first(
    qwink: RunQwink, pictures: Path, tmp_path: Path, tiny_home: Path
) -> None:
    def fails(code: int, word: str, *arguments: object) -> None:
        ran = qwink("verify", *arguments, home=tmp_path / "home")
        assert ran.code == code, ran.err
        assert ran.out == ""
        assert len(ran.err.splitlines()) == 1, ran.err
        assert word in ran.err

    for picture in pictures.glob("line-*"):
        picture.unlink()
    artifact = next((tiny_home / "artifacts").iterdir())
    fails(1, "no pictures in it", "nano", "--images", tmp_path)
    fails(1, "no such folder", "nano", "--images", tmp_path / "gone")
    fails(1, "cannot decode", "nano", "--images", pictures)
    fails(1, "no model", tmp_path / "gone")
    fails(1, "config.json", tmp_path)
    fails(1, "the checkpoint it was made from", artifact)
    fails(2, "no recipe 'fats'", "nano", "--recipe", "fats")
    fails(2, "compared with", "nano", "--recipe", "exact")
    fails(2, "threads", "nano", "--threads", 0)
    assert not (tmp_path / "home").exists()
