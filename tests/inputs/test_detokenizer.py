from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from qwink.errors import OptionError
from qwink.inputs.detokenizer import Detokenizer, StopStrings
from qwink.inputs.tokenizer import Tokenizer
from tests.tiny import write_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder)
    return Tokenizer.load(folder)


TEXTS = st.text() | st.text("a é́ü😀👩‍👩‍👧🇩🇪图片に\ufffd\u0301\n")


@given(text=TEXTS)
@example(text="👩‍👩‍👧 e\u0301 图\ufffd")
@settings(deadline=None)
def test_pieces_of_text_are_whole_characters(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode_text(text)
    whole = tokenizer.decode(ids)
    detokenizer = Detokenizer(tokenizer)
    emitted = ""
    for token in ids:
        emitted += detokenizer.add(token)
        assert whole.startswith(emitted)  # half a character would not
    assert detokenizer.finish() == ""
    assert emitted == whole


@given(ids=st.lists(st.integers(0, 560)))
@settings(deadline=None)
def test_any_ids_equal_decode(tokenizer: Tokenizer, ids: list[int]) -> None:
    # Random ids of a small byte-level vocabulary are mostly invalid UTF-8.
    detokenizer = Detokenizer(tokenizer)
    pieces = [detokenizer.add(token) for token in ids]
    assert "".join([*pieces, detokenizer.finish()]) == tokenizer.decode(ids)


def test_an_unfinished_character_waits(tokenizer: Tokenizer) -> None:
    detokenizer = Detokenizer(tokenizer)
    alphabet = {tokenizer.token_bytes(token): token for token in range(256)}
    pieces = [detokenizer.add(alphabet[bytes([byte])]) for byte in "😀".encode()]
    assert pieces == ["", "", "", "😀"]
    detokenizer.add(alphabet[b"\xf0"])
    assert detokenizer.finish() == "\ufffd"


def test_special_tokens_give_no_text_and_others_do(tokenizer: Tokenizer) -> None:
    detokenizer = Detokenizer(tokenizer)
    assert detokenizer.add(tokenizer.im_end) == ""
    assert detokenizer.add(tokenizer.token_id("<think>")) == "<think>"


def _cut(text: str, stops: list[str]) -> str:
    """Search the whole text: the first end of a stop string, the longest first."""
    for end in range(len(text) + 1):
        for stop in sorted(stops, key=len, reverse=True):
            if text[:end].endswith(stop):
                return text[: end - len(stop)]
    return text


@given(
    pieces=st.lists(st.text("abc", max_size=4), max_size=12),
    stops=st.lists(st.text("abc", min_size=1, max_size=5), max_size=3),
)
@example(pieces=["a", "b", "a", "c"], stops=["abac"])
@example(pieces=["ab", "abd"], stops=["abab", "ba"])
@settings(deadline=None)
def test_stop_strings_equal_a_simple_search(pieces: list[str], stops: list[str]) -> None:
    filtered = StopStrings(stops)
    emitted = "".join(filtered.add(piece) for piece in pieces)
    expected = _cut("".join(pieces), stops)
    assert expected.startswith(emitted)
    assert emitted + filtered.finish() == expected
    assert filtered.stopped == any(stop in "".join(pieces) for stop in stops)


def test_only_what_may_be_a_stop_is_held_back() -> None:
    stops = StopStrings(["\n\nUser:"])
    assert stops.add("Yes.\n") == "Yes."
    assert stops.add("\nUse") == ""
    assert stops.add("d") == "\n\nUsed"
    assert stops.add(" \n\nUser: no") == " "
    assert stops.stopped
    assert stops.add("more") + stops.finish() == ""


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(OptionError, match="empty"):
        StopStrings(["a", ""])
