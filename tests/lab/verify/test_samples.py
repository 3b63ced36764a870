from pathlib import Path

import PIL.Image
import pytest

from qwink.errors import ImageError
from qwink.lab.verify.samples import built_in_samples, samples_in


def test_pictures_of_a_folder_by_name(pictures: Path) -> None:
    (pictures / "inner").mkdir()
    (pictures / "LOUD.JPG").touch()
    names = [sample.name for sample in samples_in(pictures)]
    assert names == ["LOUD.JPG", "cut.png", "line-date.png", "line-total.png", "notes.jpg"]


def test_folders_that_are_none_or_hold_none(pictures: Path, tmp_path: Path) -> None:
    for folder, reason in (
        (tmp_path / "gone", "no such folder"),
        (pictures / "cut.png", "is a file"),
        (tmp_path, "no pictures in it"),
    ):
        with pytest.raises(ImageError, match=reason):
            samples_in(folder)


def test_built_in_pictures_are_the_same_each_time() -> None:
    first, second = built_in_samples(), built_in_samples()
    assert len({sample.name for sample in first}) == len(first)
    for one, other in zip(first, second, strict=True):
        assert isinstance(one.image, PIL.Image.Image)
        assert one.image == other.image
        assert one.question
        colours = one.image.getcolors(one.image.width * one.image.height)
        assert colours is not None
        assert len(colours) > 1  # something is drawn
