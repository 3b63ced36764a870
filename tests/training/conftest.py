"""Draws test pictures with Pillow's built-in font, since installed fonts differ."""

import pytest
from PIL import ImageFont

from training.nano import pictures


@pytest.fixture(autouse=True)
def _one_face(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "typeface", lambda _name, size: ImageFont.load_default(size))
