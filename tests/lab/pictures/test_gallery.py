"""The pictures of the ladder: of all kinds, the same each time, no partial files."""

from __future__ import annotations

from collections import Counter
from importlib.machinery import ModuleSpec
from pathlib import Path

import PIL.Image
import pytest

from qwink.errors import OptionError
from qwink.inputs.images import MAX_IMAGE_PIXELS
from qwink.lab.pictures import gallery, photographs
from qwink.lab.pictures.catalogue import CATALOGUE
from qwink.lab.pictures.gallery import BenchPicture, choose, write

# Drawing all takes seconds; the large ones are drawn once.
SMALL = [entry for entry in CATALOGUE if entry.kind != "large"]


def size_of(picture: BenchPicture) -> tuple[int, int]:
    """Width and height of the file."""
    with PIL.Image.open(picture.path) as image:
        return image.size


def test_fifty_pictures_of_many_kinds() -> None:
    assert len(CATALOGUE) == len({entry.name for entry in CATALOGUE}) == 50
    kinds = Counter(entry.kind for entry in CATALOGUE)
    assert len(kinds) == 9
    assert min(kinds.values()) >= 2
    assert {entry.task for entry in CATALOGUE} == {
        *("ocr", "document", "describe", "locate", "frame"),
    }
    assert sum(entry.answer is not None for entry in CATALOGUE) >= 25


@pytest.mark.parametrize("count", [1, 9, 10, 25, 50])
def test_few_pictures_are_as_varied_as_can_be(count: int) -> None:
    chosen = Counter(entry.kind for entry in choose(count))
    assert chosen.total() == count
    assert len(chosen) == min(count, 9)


@pytest.mark.parametrize("count", [0, 51])
def test_a_count_that_cannot_be_had(count: int) -> None:
    with pytest.raises(OptionError, match="1 to 50"):
        choose(count)


def test_the_same_pictures_each_time(tmp_path: Path) -> None:
    first, second = write(SMALL, tmp_path / "a"), write(SMALL, tmp_path / "b")
    for one, other in zip(first, second, strict=True):
        assert one.path.read_bytes() == other.path.read_bytes(), one.entry.name
    assert len({picture.path.read_bytes() for picture in first}) == len(SMALL)
    sizes = {size_of(picture) for picture in first}
    assert any(width > 4 * height for width, height in sizes)
    assert any(height > 4 * width for width, height in sizes)


def test_large_ones_are_large_and_allowed(tmp_path: Path) -> None:
    large = write([entry for entry in CATALOGUE if entry.kind == "large"], tmp_path)
    areas = [width * height for width, height in map(size_of, large)]
    assert min(areas) >= 12_000_000
    assert 48_000_000 <= max(areas) <= MAX_IMAGE_PIXELS
    assert {picture.path.suffix for picture in large} == {".jpg"}


def test_pictures_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = CATALOGUE[0]
    made = write([entry], tmp_path)[0]
    size = size_of(made)
    PIL.Image.new("RGB", (8, 8)).save(made.path)
    assert size_of(write([entry], tmp_path)[0]) == (8, 8)
    monkeypatch.setattr(gallery, "VERSION", gallery.VERSION + 1)
    assert size_of(write([entry], tmp_path)[0]) == size


def test_a_broken_run_leaves_no_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: object, path: Path, **__: object) -> None:
        path.write_bytes(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(PIL.Image.Image, "save", full)
    with pytest.raises(OSError, match="no space"):
        write([CATALOGUE[0]], tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_nothing(_: str) -> ModuleSpec | None:
        return None

    monkeypatch.setattr(photographs, "find_spec", find_nothing)
    with pytest.raises(OptionError, match=r"package skimage.*pip install .*\[bench\]"):
        photographs.photograph("skimage/coffee.png")
