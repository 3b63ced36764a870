"""Requests of a soak: questions with one right answer, and requests to refuse."""

from __future__ import annotations

import base64
import io
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from PIL import Image

from qwink.lab.pictures.sample import as_jpeg, clouds

Path = Literal["/v1/chat/completions", "/v1/responses"]
CHAT: Path = "/v1/chat/completions"
RESPONSES: Path = "/v1/responses"
MAX_BODY_MB = 4
SALT_BYTES = 12
SIDES = (64, 200, 336, 448, 640)  # pixels
ASKED = (
    "What is shown?",
    "Read the text.",
    "Which colours are there? Answer in one sentence.",
    "Describe it in detail, please.",
)
SYSTEM = "You are brief. You answer in the language of the question. " * 8


@dataclass(frozen=True, slots=True)
class Question:
    """A request whose answer is always the same. `pictures` are files; None stands for a text.

    The body holds `{picture N}` where data URL N belongs. A salt behind the end of a file changes
    its key, but not its pixels: the server has to encode the picture again.
    """

    path: Path
    fields: Mapping[str, Any]
    pictures: tuple[tuple[str, bytes], ...]  # (format, content)

    def body(self, model: str, stream: bool, salt: bytes = b"") -> bytes:
        """The JSON of a request."""
        text = json.dumps({"model": model, "stream": stream, **self.fields}).encode()
        for index in range(len(self.pictures)):
            text = text.replace(b"{picture %d}" % index, self.url(index, salt))
        return text

    def url(self, index: int, salt: bytes = b"") -> bytes:
        """The data URL of a picture."""
        kind, content = self.pictures[index]
        return b"data:image/%s;base64,%s" % (kind.encode(), base64.b64encode(content + salt))

    def longer(self) -> Question:
        """The same with a long answer that a client will not wait for."""
        limit = "max_tokens" if self.path == CHAT else "max_output_tokens"
        return replace(self, fields=dict(self.fields) | {limit: 1000})


@dataclass(frozen=True, slots=True)
class Answer:
    """What every answer to a question must be: text, why it ended, tokens with their logprobs."""

    text: str
    reason: str
    logprobs: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """A request to refuse, and how."""

    name: str
    body: bytes
    status: int
    code: str


def questions(count: int, seed: int = 0) -> list[Question]:
    """Texts, one and several pictures, long turns; greedy and seeded; on both endpoints."""
    rng = random.Random(seed)
    return [_question(index, rng) for index in range(count)]


def _question(index: int, rng: random.Random) -> Question:
    num_pictures = (1, 1, 0, 2, 1, 6)[index % 6]
    pictures = tuple(_picture(rng) for _ in range(num_pictures))
    question = rng.choice(ASKED)
    if num_pictures == 0 and index % 4 == 2:
        question = f"{'The quick brown fox sees a lazy dog. ' * rng.randrange(10, 40)}{question}"
    fields: dict[str, Any] = {"max_tokens": rng.choice((1, 8, 24, 48))}
    fields |= {"temperature": 0} if index % 2 else {"temperature": 0.9, "seed": rng.randrange(99)}
    if num_pictures > 2:
        fields |= {"max_pixels": 128 * 128}  # so that they fit into a small context
    if index % 3 == 1:
        return _response(question, num_pictures, fields, pictures)
    parts: list[Any] = [
        {"type": "image_url", "image_url": {"url": f"{{picture {number}}}"}}
        for number in range(num_pictures)
    ]
    turns: list[Any] = [{"role": "user", "content": [*parts, {"type": "text", "text": question}]}]
    if index % 4 == 0:
        turns = [{"role": "system", "content": SYSTEM}, *turns]
    if index % 6 == 4:
        turns += [{"role": "assistant", "content": "It is"}]  # to be continued
    if index % 2:
        fields |= {"logprobs": True, "top_logprobs": 2}
    return Question(CHAT, {"messages": turns} | fields, pictures)


def _response(
    question: str, num_pictures: int, fields: dict[str, Any], pictures: tuple[Any, ...]
) -> Question:
    parts = [{"type": "input_image", "image_url": f"{{picture {n}}}"} for n in range(num_pictures)]
    turn = {"role": "user", "content": [*parts, {"type": "input_text", "text": question}]}
    fields = dict(fields)
    fields["max_output_tokens"] = fields.pop("max_tokens")
    return Question(RESPONSES, {"input": [turn], "store": False} | fields, pictures)


def _picture(rng: random.Random) -> tuple[str, bytes]:
    picture = clouds(rng.randrange(1 << 30), rng.choice(SIDES))
    if rng.random() < 0.5:
        return "jpeg", as_jpeg(picture)
    return "png", as_png(picture)


def as_png(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def refusals(model: str) -> list[Refused]:
    """Broken pictures and JSON, an unknown model, what is too large, values out of range."""

    def chat(content: Any = "Hi", **fields: Any) -> bytes:
        turns = [{"role": "user", "content": content}]
        return json.dumps({"model": model, "messages": turns, "max_tokens": 2} | fields).encode()

    def picture(content: bytes) -> list[Any]:
        url = f"data:image/png;base64,{base64.b64encode(content).decode()}"
        return [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "?"}]

    whole = as_png(clouds(1, 200))
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    huge = as_png(Image.new("1", (20_000, 20_000)))
    elsewhere = {"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/a.png"}}
    return [
        Refused("no picture", chat(picture(b"junk")), 400, "invalid_image"),
        Refused("a tenth of a picture", chat(picture(whole[:400])), 400, "invalid_image"),
        Refused("too many pixels", chat(picture(huge)), 400, "image_too_large"),
        Refused("a URL", chat([elsewhere]), 400, "url_not_allowed"),
        Refused("half a JSON", chat()[:-9], 400, "invalid_json"),
        Refused("not JSON", b"\x89PNG\r\n\x1a\n\x00", 400, "invalid_json"),
        Refused("no message", chat(messages=[]), 400, "invalid_value"),
        Refused("a wrong type", chat(temperature="hot"), 400, "invalid_value"),
        Refused("another model", chat(model="gpt-4o"), 404, "model_not_found"),
        Refused("a long prompt", chat("long " * 40_000), 400, "context_length_exceeded"),
        Refused("a large body", chat("x" * ((MAX_BODY_MB << 20) + 1)), 413, "body_too_large"),
    ]
