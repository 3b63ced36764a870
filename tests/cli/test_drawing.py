"""Pictures with drawn boxes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from qwink.cli.drawing import Drawing, check_output, save_drawing
from qwink.errors import OptionError
from qwink.types import Box, Point

BLUE = (0, 0, 255)


def box(label: str, *bbox: float) -> Box:
    left, top, right, bottom = bbox
    return Box(label, (left, top, right, bottom), (0, 0, 0, 0))


def drawn(size: tuple[int, int], *boxes: Box) -> PIL.Image.Image:
    drawing = Drawing(np.full((size[1], size[0], 3), BLUE, np.uint8))
    for one in boxes:
        drawing.add_box(one)
    return drawing.finished()


def changed(image: PIL.Image.Image) -> tuple[int, int, int, int]:
    """The part of a picture that is not blue any more: left, top, right, bottom."""
    mask = (np.asarray(image) != BLUE).any(axis=2)
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return int(columns[0]), int(rows[0]), int(columns[-1]), int(rows[-1])


def test_a_box_lies_where_it_should_with_its_label_above() -> None:
    image = drawn((800, 600), box("cat", 250, 500, 750, 1000))
    left, top, right, bottom = changed(image)
    assert image.size == (800, 600)
    assert (left, right, bottom) == (200, 600, 599)
    assert 300 - 40 < top < 300 - 14
    assert np.asarray(image)[450, 400].tolist() == list(BLUE), "a box is not filled"


def test_a_label_at_the_top_stands_inside() -> None:
    left, top, right, bottom = changed(drawn((800, 600), box("cat", 0, 0, 500, 500)))
    assert (left, top, right, bottom) == (0, 0, 400, 300)


def test_labels_do_not_cover_each_other() -> None:
    same = [box(name, 250, 500, 750, 900) for name in ("cat", "dog", "cow")]
    one, three = drawn((800, 600), same[0]), drawn((800, 600), *same)
    assert changed(three)[1] == changed(one)[1]
    assert changed(three)[3] > changed(one)[3], "the third label stands below the box"
    four = drawn((800, 600), *same, box("hen", 250, 500, 750, 900))
    assert four.height > 600, "the fourth has no room and is listed"


@pytest.mark.parametrize("size", [(4000, 20), (20, 4000), (1, 1), (30, 30)])
def test_labels_without_room_are_listed_below(size: tuple[int, int]) -> None:
    image = drawn(size, box("a red circle", 100, 0, 900, 1000), box("b", 0, 0, 1000, 1000))
    assert image.width >= 320
    assert image.height > size[1] + 40
    below = np.asarray(image)[size[1] :]
    assert (below.reshape(-1, 3) == 255).all(axis=1).mean() > 0.8
    assert (below < 100).any(), "black letters on white"


def test_long_labels_and_control_characters() -> None:
    image = drawn((500, 400), box("word " * 200, 0, 100, 500, 500), box("\n\x00", 0, 0, 10, 10))
    assert image.width == 500


def test_letters_without_a_font_become_numbers(tmp_path: Path) -> None:
    PIL.Image.new("RGB", (400, 400), BLUE).save(tmp_path / "a.png")
    boxes = [box("cat", 0, 500, 500, 900), box("\U0001f9ff\U000e0001\uffff", 500, 500, 900, 900)]
    points = [Point("dot", (500, 100), (0, 0))]
    out = tmp_path / "out.png"
    assert save_drawing(str(tmp_path / "a.png"), boxes, points, out) == 1
    with PIL.Image.open(out) as image:
        assert image.size == (400, 400)


def test_the_picture_is_upright(tmp_path: Path) -> None:
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    PIL.Image.new("RGB", (400, 100), BLUE).save(tmp_path / "a.png", exif=exif)
    save_drawing(str(tmp_path / "a.png"), [box("", 0, 500, 1000, 1000)], [], tmp_path / "b.webp")
    with PIL.Image.open(tmp_path / "b.webp") as image:
        assert image.size == (100, 400)
        assert image.format == "WEBP"
        middle = np.asarray(image.convert("RGB"))[:, 50]
    assert (middle[:190, 2] > 200).all()
    assert middle[399, 2] < 150


def test_outputs_that_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "a.png"
    source.touch()
    for path, sources, words in (
        (tmp_path / "b.png", [], "takes one picture, and there are 0"),
        (tmp_path / "b.png", ["a", "b"], "takes one picture, and there are 2"),
        (tmp_path / "b.bmp", ["-"], "must end with .png"),
        (tmp_path / "none" / "b.png", ["-"], "no such folder"),
        (source, [str(source)], "would overwrite"),
    ):
        with pytest.raises(OptionError, match=words):
            check_output(path, sources)
    check_output(tmp_path / "b.PNG", [str(source)])
    (tmp_path / "c.png").mkdir()
    PIL.Image.new("RGB", (4, 4)).save(source)
    with pytest.raises(OptionError, match="cannot be written"):
        save_drawing(str(source), [], [], tmp_path / "c.png")
