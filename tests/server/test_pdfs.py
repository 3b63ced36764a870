"""PDFs over HTTP, as OpenAI writes them."""

from __future__ import annotations

import base64
from typing import Any

from tests.inputs.pdfs import write_pdf
from tests.server.process import Server

DATA = base64.b64encode(write_pdf(["One", "Two"])).decode()
URL = f"data:application/pdf;base64,{DATA}"
SIZES = {"min_pixels": 1024, "max_pixels": 4096, "temperature": 0}


def ask(server: Server, part: dict[str, Any]) -> dict[str, Any]:
    content = [part, {"type": "text", "text": "Read it"}]
    body = {"model": "tiny", "messages": [{"role": "user", "content": content}], "max_tokens": 4}
    url = f"{server.address}/v1/chat/completions"
    answer: dict[str, Any] = server.http.post(url, json=body | SIZES, timeout=60).json()
    return answer


def image_tokens(answer: dict[str, Any]) -> int:
    assert "usage" in answer, answer
    tokens: int = answer["usage"]["prompt_tokens_details"]["image_tokens"]
    return tokens


def test_spellings(server: Server) -> None:
    for part in (
        {"type": "file", "file": {"file_data": URL, "filename": "a.pdf"}},
        {"type": "file", "file": {"file_data": DATA, "filename": "a.pdf"}},
        {"type": "input_file", "file_data": URL, "filename": "a.pdf"},
        {"type": "image_url", "image_url": {"url": URL}},
    ):
        assert image_tokens(ask(server, part)) == 2 * 2
    one = {"type": "file", "file": {"file_data": URL, "pages": "2", "text_layer": "use"}}
    assert image_tokens(ask(server, one)) == 2


def test_responses(server: Server) -> None:
    part = {"type": "input_file", "file_data": URL, "filename": "a.pdf"}
    body = {
        "model": "tiny",
        "input": [{"role": "user", "content": [part, {"type": "input_text", "text": "Read"}]}],
        "max_output_tokens": 4,
    }
    answer = server.http.post(f"{server.address}/v1/responses", json=body | SIZES, timeout=60)
    assert answer.status_code == 200, answer.text


def test_errors_name_the_field(server: Server) -> None:
    place = "messages[0].content[0]"
    for file, param, why in (
        ({"file_data": URL, "pages": "9"}, None, "has 2 pages"),
        ({"file_data": URL, "pages": "x"}, f"{place}.file.pages", "write numbers and ranges"),
        ({"file_data": "data:application/pdf;base64,JVBERi0x"}, f"{place}.file.file_data", "PDF"),
        ({"file_id": "file-1"}, f"{place}.file_id", "not read here"),
        ({"filename": "a.pdf"}, place, "needs file_data; write"),
    ):
        error = ask(server, {"type": "file", "file": file})["error"]
        assert why in error["message"]
        assert param is None or error["param"] == param
