"""nano with a given recipe, `load_nano("fast")`, and a folder of pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qwink.runtime.models import load
from qwink.runtime.vlm import VLM
from qwink.settings import Settings

LoadNano = Callable[[str], VLM]


@pytest.fixture(scope="session")
def nano_settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    home = tmp_path_factory.mktemp("nano-home")
    return Settings(home=home, hub_cache=home / "none", threads=1)


@pytest.fixture(scope="session")
def load_nano(nano_settings: Settings) -> Iterator[LoadNano]:
    models: dict[str, VLM] = {}

    def get(recipe: str) -> VLM:
        if recipe not in models:
            models[recipe] = load("nano", recipe=recipe, settings=nano_settings)
        return models[recipe]

    yield get
    for model in models.values():
        model.close()


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder of two good pictures, a text named notes.jpg, and a truncated picture."""
    from qwink.lab.verify.samples import built_in_samples

    folder = tmp_path / "pictures"
    folder.mkdir()
    for sample in built_in_samples()[:2]:
        sample.image.save(folder / f"{sample.name}.png")  # type: ignore[union-attr]
    (folder / "notes.jpg").write_text("not a picture")
    (folder / "cut.png").write_bytes((folder / "line-date.png").read_bytes()[:200])
    (folder / "readme.txt").write_text("passed over")
    return folder
