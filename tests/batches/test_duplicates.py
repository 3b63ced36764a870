"""Tests of blank and similar pictures."""

from __future__ import annotations

import io

import numpy as np
import PIL.Image
import PIL.ImageDraw
import pytest

from qwink.batches.duplicates import Lookalikes, difference_hash, is_blank
from qwink.inputs.images import OpenedImage, open_image
from qwink.lab.pictures.sample import clouds


def page(text: str = "", noise: float = 0.0, size: tuple[int, int] = (1654, 2339)) -> OpenedImage:
    """An A4 page at 200 dots per inch."""
    picture = PIL.Image.new("L", size, 250)
    PIL.ImageDraw.Draw(picture).text((size[0] // 2, size[1] - 100), text, fill=30, font_size=32)
    pixels = np.asarray(picture) + np.random.default_rng(0).normal(0, noise, size[::-1])
    return open_image(pixels.clip(0, 255).astype(np.uint8))


@pytest.mark.parametrize("noise", [0.0, 5.0])
def test_a_page_number_is_no_blank_page(noise: float) -> None:
    assert is_blank(page(noise=noise))
    assert not is_blank(page("- 12 -", noise))


def test_a_gradient_is_not_blank() -> None:
    assert not is_blank(open_image(clouds(0, 256)))


def test_hashes_of_variants_are_close() -> None:
    picture = clouds(1, 512)
    file = io.BytesIO()
    picture.resize((300, 300)).save(file, "JPEG", quality=60)
    first, variant, other = (
        difference_hash(open_image(source)) for source in (picture, file.getvalue(), clouds(2, 512))
    )
    assert (first ^ variant).bit_count() <= 4
    assert (first ^ other).bit_count() > 12


def test_the_nearest_is_found_by_question() -> None:
    lookalikes = Lookalikes(2)
    lookalikes.add(0b0111, "Q", 1)
    place = lookalikes.add(0b0001, "Q", 2)
    assert lookalikes.find(0b0000, "Q") == 2
    assert lookalikes.find(0b0000, "other") is None
    assert lookalikes.find(0b11110000, "Q") is None
    lookalikes.renumber("Q", place, -1)
    assert lookalikes.find(0b0000, "Q") is None
    assert lookalikes.find(0b1111, "Q") == 1
