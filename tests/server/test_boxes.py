"""Boxes of answers over HTTP, by nano."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.server.process import Server, data_url, user

CIRCLE = Path(__file__).parents[2] / "examples" / "red-circle.png"  # 128 by 128 pixels


def answer(server: Server, question: str, **fields: Any) -> dict[str, Any]:
    picture = {"type": "image_url", "image_url": {"url": data_url(CIRCLE.read_bytes())}}
    body = {"model": "nano", "messages": [user(picture, question)]} | fields
    response = server.http.post(f"{server.address}/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    document: dict[str, Any] = response.json()
    return document


def test_boxes_beside_the_text(nano_server: Server) -> None:
    document = answer(nano_server, "Locate the circle.", task="locate")
    (box,) = document["boxes"]
    assert (box["label"], box["image"]) == ("circle", 0)
    assert box["box"] == [round(0.128 * thousandths) for thousandths in box["bbox_2d"]]
    assert document["points"] == []
    assert '"bbox_2d"' in document["choices"][0]["message"]["content"]


def test_other_tasks_have_no_such_fields(nano_server: Server) -> None:
    document = answer(nano_server, "What colour is the circle?", task="describe")
    assert "boxes" not in document
    assert "points" not in document


def test_boxes_at_the_end_of_a_stream(nano_server: Server) -> None:
    whole = answer(nano_server, "Locate the circle.")
    picture = {"type": "image_url", "image_url": {"url": data_url(CIRCLE.read_bytes())}}
    with nano_server.client() as client:
        create: Any = client.chat.completions.create
        turn = user(picture, "Locate the circle.")
        *_, last = create(model="nano", messages=[turn], stream=True)
    assert last.boxes == whole["boxes"]


def test_boxes_of_a_response(nano_server: Server) -> None:
    picture = {"type": "input_image", "image_url": data_url(CIRCLE.read_bytes())}
    question = {"type": "input_text", "text": "Locate the circle."}
    turn: Any = {"role": "user", "content": [picture, question]}
    with nano_server.client() as client:
        response: Any = client.responses.create(model="nano", input=[turn])
    assert response.boxes[0]["label"] == "circle"
