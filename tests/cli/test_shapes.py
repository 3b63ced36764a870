"""The shape of an answer on the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from qwink.cli.shapes import shape_options
from qwink.errors import OptionError, ShapeError
from tests.conftest import RunQwink

SCHEMA = {"type": "object", "properties": {"paid": {"type": "boolean"}}, "required": ["paid"]}


def test_a_schema_is_json_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(SCHEMA))
    options = [shape_options(one, None, None, None) for one in (str(file), json.dumps(SCHEMA))]
    assert options[0] == options[1] == {"schema": json.dumps(SCHEMA)}


def test_choices_are_parted_by_commas() -> None:
    assert shape_options(None, "yes, no,not now", None, None) == {
        "choices": ["yes", "no", "not now"]
    }


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("nowhere.json", None, None, None), "cannot read nowhere.json: No such file"),
        (("{", None, None, None), "not JSON"),
        ((None, "yes,", None, None), "none empty"),
        ((None, None, None, Path("nowhere.lark")), "cannot read nowhere.lark"),
        ((None, "a,b", "a", None), "exclude each other"),
    ],
)
def test_errors(given: Any, words: str) -> None:
    with pytest.raises((OptionError, ShapeError), match=words):
        shape_options(*given)


def test_answers(qwink: RunQwink) -> None:
    closed = json.dumps(SCHEMA | {"additionalProperties": False})
    ran = qwink("ask", "-q", "Is it?", "--schema", closed)
    assert ran.out.strip() in ('{"paid":true}', '{"paid":false}')
    ran = qwink("ask", "-q", "Is it?", "--choices", "yes,no", "--json")
    document = json.loads(ran.out)
    assert document["text"] == document["parsed"] == document["choices"][0]["text"]
    assert sum(one["probability"] for one in document["choices"]) == pytest.approx(1)
    ran = qwink("ask", "-q", "Is it?", "--regex", "[a-c]{2}!")
    assert re.fullmatch("[a-c]{2}!", ran.out.strip())
