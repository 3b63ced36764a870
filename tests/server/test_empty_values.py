"""Values that ask for nothing, and those of other APIs that must not be ignored in silence."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.process import Server, user
from tests.server.test_dialect import post, refused, server, text_of

__all__ = ["server"]  # the fixture


@pytest.mark.parametrize("stop", ["", [], [""], ["", ""]])
def test_an_empty_stop_text_stops_nothing(server: Server, stop: Any) -> None:
    assert text_of(post(server, stop=stop, max_tokens=6)) == text_of(post(server, max_tokens=6))


def test_pictures_of_other_apis_are_not_left_out_in_silence(server: Server) -> None:
    turn = user("Hi") | {"images": ["iVBOR"]}
    for fields in ({"images": ["iVBOR"]}, {"messages": [turn]}):
        (warning,) = post(server, **fields).json()["warnings"]
        assert warning.endswith(
            "images was ignored; pictures go into a turn's content, as image_url"
        )


@pytest.mark.parametrize("include", [[{}], [["a"]], [5], "a", {}])
def test_values_that_include_cannot_have(server: Server, include: Any) -> None:
    assert refused(post(server, "/v1/responses", include=include))[0] == 400


def test_late_system_turns_are_moved_to_the_start(server: Server) -> None:
    system, asked = {"role": "system", "content": "Be brief."}, user("Hi")
    late = post(server, messages=[asked, system])
    assert late.json()["warnings"] == [
        "the model sees system turns at the start only; later ones were moved there"
    ]
    first = post(server, messages=[system, asked])
    assert "warnings" not in first.json()
    assert text_of(late) == text_of(first)
