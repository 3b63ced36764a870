"""Sizes by name."""

from __future__ import annotations

import pytest

from qwink.errors import OptionError
from qwink.lab.stages.sizes import DEFAULT_SIZES, Size, choose_sizes

PHOTO = (1920, 1440)


@pytest.mark.parametrize(
    ("name", "area"),
    [("448x448", 448 * 448), ("768px", 768 * 576), ("1024t", 1024 * 1024), ("64x32", 2048)],
)
def test_area(name: str, area: int) -> None:
    assert Size(name).area(*PHOTO) == area
    assert Size(name).area(*PHOTO[::-1]) == area


@pytest.mark.parametrize("name", ["", "448", "448x", "x448", "0x448", "-1t", "12tokens", "768PX"])
def test_unknown_names(name: str) -> None:
    with pytest.raises(OptionError, match="448x448"):
        Size(name)


def test_defaults_rise() -> None:
    sizes, skipped = choose_sizes(None, PHOTO, 16_777_216)
    assert tuple(size.name for size in sizes) == DEFAULT_SIZES
    assert skipped == []


def test_defaults_beyond_the_model_are_left_out() -> None:
    sizes, skipped = choose_sizes(None, PHOTO, 224 * 224)
    assert [size.name for size in sizes] == ["224x224"]
    assert skipped == ["336x336", "448x448", "768px", "1024t"]


def test_sizes_are_sorted_and_unique() -> None:
    sizes, _ = choose_sizes(("448x448", "224x224", "448x448"), PHOTO, 16_777_216)
    assert [size.name for size in sizes] == ["224x224", "448x448"]


@pytest.mark.parametrize("name", ["448x448", "8x8"])
def test_what_was_asked_for_and_does_not_fit_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name}.*1024 to 50176"):
        choose_sizes((name,), PHOTO, 224 * 224)
