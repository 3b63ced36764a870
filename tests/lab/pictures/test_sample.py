"""Pictures to measure with."""

from __future__ import annotations

import numpy as np

from qwink.inputs.images import decode, open_image
from qwink.lab.pictures.sample import SAMPLE_SIZE, as_jpeg, sample_picture, variant


def test_sample_is_the_same_each_time() -> None:
    first, second = (as_jpeg(sample_picture()) for _ in range(2))
    assert first == second
    assert open_image(first).size == SAMPLE_SIZE


def test_variants_are_new_pictures_that_look_alike() -> None:
    picture = sample_picture()
    one, two = (variant(picture, number) for number in (1, 2))
    assert variant(picture, 1).tobytes() == one.tobytes()
    differ = (np.asarray(one) != np.asarray(two)).any(axis=-1)
    assert differ[:32, :32].any()
    assert not differ[32:].any()
    keys = {decode(open_image(as_jpeg(image))).key for image in (picture, one, two)}
    assert len(keys) == 3
