"""Where prompts are cut."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qwink.runtime.chunks import Chunks
from qwink.types import Grid, ImageSpan, Prompt


def prompt(length: int, *spans: tuple[int, int], system: int = 0) -> Prompt:
    images = tuple(ImageSpan(start, size, Grid(1, 2, 2 * size), "key") for start, size in spans)
    return Prompt(
        np.zeros(length, np.int64), images, np.zeros((3, length), np.int64), length, system
    )


def cuts(chunks: Chunks, whole: Prompt, start: int = 0) -> list[int]:
    found = [start]
    while found[-1] < len(whole):
        found.append(chunks.stop(whole, found[-1]))
    return found


def test_a_prompt_is_cut_behind_the_system_turn_and_each_picture() -> None:
    fixed = Chunks(16, anywhere=False)
    assert cuts(fixed, prompt(40)) == [0, 16, 32, 40]
    assert cuts(fixed, prompt(40, (4, 20))) == [0, 16, 24, 40]
    assert cuts(fixed, prompt(40, (4, 8), (30, 10))) == [0, 12, 28, 40]
    assert cuts(fixed, prompt(40, (14, 8), system=9)) == [0, 9, 22, 38, 40]
    assert cuts(Chunks(16, anywhere=True), prompt(40, (4, 20)), 3) == [3, 19, 35, 40]


@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 20), st.integers(1, 20), st.data())
def test_a_known_start_leads_to_the_same_cuts(
    rest: int, size: int, before: int, picture: int, data: st.DataObject
) -> None:
    whole = prompt(before + picture + rest, (before, picture))
    chunks = Chunks(size, anywhere=False)
    known = data.draw(st.integers(0, len(whole)))
    usable = chunks.usable(whole, known)
    assert usable <= known
    every = cuts(chunks, whole)
    assert [cut for cut in every if cut >= usable] == cuts(chunks, whole, usable)
    assert Chunks(size, anywhere=True).usable(whole, known) == known
