from __future__ import annotations

import base64
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwink.errors import FetchError, ImageError
from qwink.inputs.data_urls import is_data_url, unpack_data_url


@given(st.binary(), st.booleans(), st.booleans(), st.booleans())
def test_every_spelling_of_base64(content: bytes, safe: bool, padded: bool, quoted: bool) -> None:
    text = (base64.urlsafe_b64encode if safe else base64.b64encode)(content).decode()
    text = text if padded else text.rstrip("=")
    text = quote(text, safe="") if quoted else text
    assert unpack_data_url(f"data:image/png;base64,{text}") == content


@given(st.binary())
def test_text_is_percent_decoded(content: bytes) -> None:
    assert unpack_data_url(f"data:image/png,{quote(content)}") == content


@pytest.mark.parametrize(
    "header",
    [
        "data:;base64",
        "data:image/png;base64;charset=utf-8",
        "data:image/png;charset=utf-8;base64",
        "DATA:IMAGE/PNG;BASE64",
        "\n data:image/png; base64 ",
        "data:image/png;name=base64;base64",
    ],
)
def test_headers(header: str) -> None:
    assert is_data_url(header)
    assert unpack_data_url(f"{header},AQID\n BAU#part\n") == b"\1\2\3\4\5"


def test_base64_is_a_parameter_not_a_part_of_one() -> None:
    assert unpack_data_url("data:image/png;name=base64,AQID") == b"AQID"
    assert unpack_data_url("data:base64x,AQID") == b"AQID"


@pytest.mark.parametrize("url", ["data:", "data:image/png", "data:;base64,A", "data:;base64,ä"])
def test_damaged_urls_are_refused_without_their_content(url: str) -> None:
    with pytest.raises(ImageError) as caught:
        unpack_data_url(f"{url}secret!" if "," in url else url)
    assert "secret" not in str(caught.value)
    assert not isinstance(caught.value, FetchError)


def test_other_urls() -> None:
    for text in ("", "data", "datax:,", "http://x/data:,", "C:\\data:"):
        assert not is_data_url(text)
