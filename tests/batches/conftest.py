"""nano, loaded once, and a folder of pictures that it can read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import PIL.Image
import PIL.ImageDraw
import pytest

from qwink.runtime.models import load
from qwink.runtime.vlm import VLM
from qwink.runtime.waiting import Limits
from qwink.settings import Settings


@pytest.fixture(scope="session")
def nano(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VLM]:
    settings = Settings(home=tmp_path_factory.mktemp("home"), hub_cache=Path("nowhere"))
    with load("nano", threads=1, limits=Limits(max_running=4), settings=settings) as vlm:
        yield vlm


def draw(path: Path, colour: str, side: int = 64) -> Path:
    """A disc on white."""
    picture = PIL.Image.new("RGB", (side, side), "white")
    PIL.ImageDraw.Draw(picture).ellipse((8, 8, side - 8, side - 8), fill=colour)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path)
    return path


COLOURS = ("red", "green", "blue", "black", "orange", "purple")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six pictures, all different."""
    for number, colour in enumerate(COLOURS):
        draw(tmp_path / "scans" / f"{number}.png", colour)
    return tmp_path / "scans"
