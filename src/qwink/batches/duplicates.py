"""Pictures that need no answer computed: blank ones, and those that look like one before."""

from __future__ import annotations

from array import array

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from qwink.inputs.images import OpenedImage, decode
from qwink.types import Picture

# A page is blank if fewer than one of 10,000 pixels differ visibly from the paper. A page number
# alone is more: about two of 10,000.
_VISIBLE, _BLANK_SHARE, _BLANK_SIDE = 16, 1e-4, 1024


def grey(picture: OpenedImage | Picture, side: int) -> NDArray[np.uint8]:
    """The picture in grey, its longer side reduced to `side` pixels. Raises ImageError."""
    image = _image(picture, (side, side))
    image.thumbnail((side, side), PIL.Image.Resampling.BOX)
    return np.asarray(image)


def is_blank(picture: OpenedImage | Picture) -> bool:
    """Whether nearly all pixels have one brightness. Raises ImageError."""
    pixels = grey(picture, _BLANK_SIDE).astype(np.int16)
    different = np.abs(pixels - np.int16(np.median(pixels))) > _VISIBLE
    return bool(different.mean() < _BLANK_SHARE)


def difference_hash(picture: OpenedImage | Picture) -> int:
    """64 bits: where brightness rises from left to right in a picture of 9 × 8 pixels (dHash).

    Pictures that look alike differ in few bits. Raises ImageError.
    """
    small = _image(picture, (72, 64)).resize((9, 8), PIL.Image.Resampling.BOX)
    values = np.asarray(small).astype(np.int16)
    bits = (values[:, 1:] > values[:, :-1]).ravel()
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


def _image(picture: OpenedImage | Picture, at_least: tuple[int, int]) -> PIL.Image.Image:
    """The picture in grey; a JPEG decoded no larger than needed for `at_least`."""
    decoded = decode(picture, at_least) if isinstance(picture, OpenedImage) else picture
    return PIL.Image.fromarray(decoded.pixels).convert("L")


class Lookalikes:
    """Hashes of pictures that were answered, by question. 16 bytes a picture."""

    def __init__(self, most_bits: int) -> None:
        """Pictures whose hashes differ in up to `most_bits` bits look alike."""
        self._most_bits = most_bits
        self._hashes: dict[str, array[int]] = {}
        self._numbers: dict[str, array[int]] = {}

    def add(self, picture_hash: int, question: str, number: int) -> int:
        """A picture, and a number of the caller's for it. Returns its place, for `renumber`."""
        self._hashes.setdefault(question, array("Q")).append(picture_hash)
        numbers = self._numbers.setdefault(question, array("q"))
        numbers.append(number)
        return len(numbers) - 1

    def renumber(self, question: str, place: int, number: int) -> None:
        """Give a picture another number; -1: it is not to be found any more."""
        self._numbers[question][place] = number

    def find(self, picture_hash: int, question: str) -> int | None:
        """The number of the most similar picture with this question; None if none is."""
        if question not in self._hashes:
            return None
        hashes = np.frombuffer(self._hashes[question], np.uint64)
        numbers = np.frombuffer(self._numbers[question], np.int64)
        bits = np.bitwise_count(hashes ^ np.uint64(picture_hash)).astype(np.int16)
        bits[numbers == -1] = 65
        nearest = int(bits.argmin())
        return int(numbers[nearest]) if bits[nearest] <= self._most_bits else None
