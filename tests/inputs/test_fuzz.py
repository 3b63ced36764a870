"""Damaged, truncated and crafted files of all kinds: our errors, or a picture; never a crash."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import numpy as np
import pytest

from qwink.errors import QwinkError
from qwink.inputs.containers import is_video
from qwink.inputs.images import decode, open_image
from qwink.inputs.pdf import is_pdf, open_pdf, render, text_layer
from tests.inputs.pdfs import write_pdf
from tests.inputs.pictures import quadrants, save

ROUNDS = int(os.environ.get("QWINK_FUZZ_FILES", "60"))  # for each kind
MOST_PIXELS = 1_000_000
KINDS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "PDF")


def whole(kind: str) -> bytes:
    """A small file that is right."""
    return write_pdf(["Total 42.50", "Page two"]) if kind == "PDF" else save(quadrants(), kind)


def damaged(data: bytes, rng: random.Random) -> Iterator[bytes]:
    """The file cut short, with other bytes, with numbers made large, with parts twice."""
    yield data[: rng.randrange(len(data))]
    changed = bytearray(data)
    for _ in range(rng.choice((1, 3, 30))):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    yield bytes(changed)
    place = rng.randrange(len(data))
    yield data[:place] + b"\xff\xff\xff\x7f" + data[place + 4 :]
    first, last = sorted((rng.randrange(len(data)), rng.randrange(len(data))))
    yield data[:last] + data[first:]
    yield data[:first] + data[last:]


def use(data: bytes) -> None:
    """What a request does with the bytes of a file. Raises QwinkError."""
    if is_pdf(data):
        opened = open_pdf(data)
        for number in range(1, min(opened.num_pages, 3) + 1):
            pixels = render(opened, number, (64, 64))
            assert np.asarray(pixels).ndim == 3
            text_layer(opened, number)
    elif not is_video(data):
        picture = decode(open_image(data, MOST_PIXELS))
        assert picture.pixels.size <= 3 * 4 * MOST_PIXELS
        assert picture.pixels.dtype == np.uint8


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_give_errors_or_pictures(kind: str) -> None:
    seed = random.randrange(1 << 30)
    rng, data = random.Random(seed), whole(kind)
    use(data)
    messages = []
    for _ in range(ROUNDS):
        for broken in damaged(data, rng):
            try:
                use(broken)
            except QwinkError as error:
                messages.append(str(error))
            except Exception as error:
                raise AssertionError(f"seed {seed}: {kind}: {type(error).__name__}") from error
    assert len(messages) > ROUNDS / 2, "the damage was not seen"
    assert all(10 < len(message) < 600 for message in messages), seed
