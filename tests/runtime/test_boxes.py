"""Boxes and points of answers as data."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwink.runtime.boxes import Shown, find_boxes
from qwink.runtime.conversation import Conversation
from qwink.runtime.vlm import VLM
from qwink.types import Box, Point

ONE = Shown(((2000, 500),))
CAT = {"bbox_2d": [100, 200, 300, 400], "label": "cat"}
CAT_BOX = Box("cat", (100, 200, 300, 400), (200, 100, 600, 200))


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(CAT),
        json.dumps([CAT]),
        f"```json\n{json.dumps([CAT], indent=2)}\n```",
        f"```\n[{json.dumps(CAT)}]\n```",
        f'It is 5" {{wide}}: [{json.dumps(CAT)}]. Done {{.',
        json.dumps({"objects": {"found": [CAT]}}),
        f'{{"objects": [{json.dumps(CAT)}, {{"bbox_2d": [1, 2, 3, 4], "lab',
        f"[{json.dumps(CAT)}, ]",
        '[{"bbox": [100, 200, 300, 400], "name": "cat"}]',
        '[{"bbox_2d": [[300, 400, 100, 200]], "label": "cat"}]',
    ],
)
def test_boxes_in_every_form(text: str) -> None:
    assert find_boxes(text, ONE).boxes == (CAT_BOX,)


def test_points_and_boxes_keep_their_order() -> None:
    text = '[{"point_2d": [10, 20], "label": "a"}, {"point_2d": [999.5, 1000], "label": "b"}]'
    assert find_boxes(text, ONE).points == (
        Point("a", (10, 20), (20, 10)),
        Point("b", (999.5, 1000), (1999, 500)),
    )
    text = json.dumps([{"bbox_2d": [n, n, n, n], "label": str(n)} for n in range(5)])
    assert [box.label for box in find_boxes(text, ONE).boxes] == list("01234")


def test_a_label_may_hold_anything() -> None:
    label = 'a "}{" \\ 猫\n'
    text = f"x {json.dumps([CAT | {'label': label}, CAT])} [{{"
    assert [box.label for box in find_boxes(text, ONE).boxes] == [label, "cat"]


@pytest.mark.parametrize(
    "item",
    [
        '{"bbox_2d": [1, 2, 3]}',
        '{"bbox_2d": [1, 2, 3, "4"]}',
        '{"bbox_2d": [1, 2, 3, NaN]}',
        '{"bbox_2d": [1, 2, 3, true]}',
        '{"bbox_2d": [1, 2, 3, 1e999]}',
        '{"bbox_2d": {"x": 1}}',
        '{"bbox_2d": []}',
        '{"point_2d": [1]}',
        '{"bbox_2d": ' + "9" * 5000 + "}",
        '"bbox_2d"' + "[" * 100_000,
        '{"\\"' * 20_000 + '"bbox_2d"',
    ],
)
def test_what_is_no_box_is_left_out(item: str) -> None:
    found = find_boxes(item, ONE)
    assert (found.boxes, found.points) == ((), ())


def test_coordinates_stay_in_the_picture() -> None:
    box = find_boxes('{"bbox_2d": [1900, -5, 500, 250]}', ONE).boxes[0]
    assert (box.bbox_2d, box.box, box.label) == ((500, 0, 1000, 250), (1000, 0, 2000, 125), "")


@given(st.text(alphabet='{}[]",:\\1 bbox_2dlael'), st.text())
def test_no_text_raises(text: str, more: str) -> None:
    find_boxes(f'"bbox_2d" {text} {more}', ONE)


@pytest.mark.parametrize("size", [(20_000, 10), (10, 20_000), (1, 1), (65, 31)])
def test_extreme_shapes(size: tuple[int, int]) -> None:
    box = find_boxes('{"bbox_2d": [0, 500, 1000, 1000]}', Shown((size,))).boxes[0]
    assert box.box == (0, round(size[1] / 2), *size)


def test_several_pictures() -> None:
    shown = Shown(((100, 100), (200, 50), (1000, 1000)), first=1, several=True)
    found = find_boxes(json.dumps([CAT, CAT | {"image": 3}, CAT | {"image": 9}]), shown)
    assert [(box.image, box.box) for box in found.boxes] == [
        (1, (20, 10, 60, 20)),
        (2, (100, 200, 300, 400)),
        (1, (20, 10, 60, 20)),
    ]
    assert found.warnings[0].startswith("the answer does not say which of 3 pictures")
    assert "as image 2;" in found.warnings[0]
    assert find_boxes(json.dumps(CAT | {"image": 3}), shown).warnings == ()
    assert find_boxes(json.dumps(CAT), dataclasses.replace(shown, several=False)).warnings == ()
    assert find_boxes(json.dumps(CAT), Shown()).boxes == ()


# Answers of a model


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`says(text)` lets the next answers be `text`: the random model writes no boxes."""

    def say(text: str) -> None:
        def accept(sequence: Any, _: Any) -> str:
            sequence.generated.append(1)
            sequence.finish_reason = "stop"
            return text

        monkeypatch.setattr("qwink.runtime.sequence.Sequence.accept", accept)

    return say


def test_pixels_are_those_of_the_upright_original(vlm: VLM, tmp_path: Path, says: Any) -> None:
    says(json.dumps([CAT]))
    exif = PIL.Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees: shown as 100 pixels wide and 400 high
    path = tmp_path / "turned.jpg"
    PIL.Image.new("RGB", (400, 100), "red").save(path, exif=exif)
    result = vlm.ask(path, "Where is the cat?")
    assert result.task == "locate"
    assert [box.box for box in result.boxes] == [(10, 80, 30, 160)]
    encoded = vlm.encode(path, task="locate")
    assert vlm.ask(encoded, "Where?", task="locate").boxes == result.boxes
    bare = dataclasses.replace(encoded, original_size=None)  # the size that the model sees
    seen = vlm.ask(bare, "Where?", task="locate").boxes[0].box
    assert seen[3] == round(0.4 * encoded.grid.h * vlm.engine.config.vision.patch_size)


def test_boxes_are_in_the_pictures_of_the_last_turn_with_any(
    vlm: VLM, pictures: list[Path], says: Any
) -> None:
    says(json.dumps([CAT]))
    conversation = Conversation(vlm)
    assert conversation.ask("Where?", pictures[0]).boxes[0].image == 0
    assert conversation.ask("Where?", pictures[1]).boxes[0] == Box(
        "cat", (100, 200, 300, 400), (13, 13, 38, 26), image=1
    )
    result = conversation.ask("And now, where?")
    assert (result.boxes[0].image, result.warnings) == (1, ())
    both = vlm.ask(pictures[:2], "Where?")
    assert both.boxes[0].image == 0
    assert "which of 2 pictures" in both.warnings[0]


def test_other_answers_have_none(vlm: VLM, pictures: list[Path]) -> None:
    result = vlm.ask(pictures[0], "What is this?", task="describe")
    assert (result.task, result.boxes, result.points) == ("describe", (), ())
    assert vlm.ask(question="Hello").task is None
