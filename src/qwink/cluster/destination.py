"""What a request says about where it should go: its first picture, its conversation's starts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from qwink.errors import ImageError
from qwink.inputs.data_urls import is_data_url, unpack_data_url

_UPLOADED = "qwink:sha256:"
_MOST_STARTS = 64  # the longest ones
# Fields of a turn's parts that hold a picture, a video or a PDF.
_FIELDS = ("url", "image_url", "video_url", "video", "pictures", "file_data")


@dataclass(frozen=True, slots=True)
class Destination:
    """`picture` is `picture_key` of the first picture; `starts` go from the longest to the shortest
    start of the conversation, as hashes. `uploads` are the keys of all uploaded pictures in it.
    """

    picture: str | None = None
    starts: tuple[str, ...] = ()
    uploads: tuple[str, ...] = ()


def destination_of(body: bytes | bytearray) -> Destination:
    """For a body of /v1/chat/completions or /v1/responses; an empty one for anything else.

    Takes a while for large pictures: about a millisecond for each MB.
    """
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return Destination()
    if not isinstance(request, dict):
        return Destination()
    turns = request.get("messages", request.get("input"))
    turns = turns if isinstance(turns, list) else [turns]
    try:
        found = list(_pictures(turns))
        return Destination(
            picture_key(found[0]) if found else None,
            _starts(request.get("instructions"), turns),
            tuple(dict.fromkeys(picture_key(url) for url in found if _is_upload(url))),
        )
    except RecursionError:  # the replica says what is wrong
        return Destination()


def picture_key(url: str) -> str:
    """SHA-256 in hex: of a data URL's content, as clients hint and as uploads are named; of the
    text of other URLs.
    """
    url = url.strip()
    if _is_upload(url):
        return url.removeprefix(_UPLOADED)
    if is_data_url(url):
        try:
            return content_key(unpack_data_url(url))
        except ImageError:
            pass
    return content_key(url.encode("utf-8", "surrogatepass"))


def _is_upload(url: str) -> bool:
    return url.strip().startswith(_UPLOADED)


def content_key(content: bytes) -> str:
    """The key of a picture with this content."""
    return hashlib.sha256(content).hexdigest()


def _pictures(node: Any) -> Iterator[str]:
    """The URLs of pictures, videos and PDFs, in order."""
    if isinstance(node, list):
        for item in node:
            yield from _pictures(item)
    elif isinstance(node, dict):
        for name, value in node.items():
            if name in _FIELDS and isinstance(value, str):
                yield value
            elif name in _FIELDS and isinstance(value, list):
                yield from (url for url in value if isinstance(url, str))
            else:
                yield from _pictures(value)


def _starts(instructions: Any, turns: list[Any]) -> tuple[str, ...]:
    digest = hashlib.sha256(_text(instructions))
    starts = []
    for turn in turns:
        digest.update(hashlib.sha256(_text(turn)).digest())
        starts.append(digest.copy().hexdigest())
    return tuple(starts[: -_MOST_STARTS - 1 : -1])


def _text(node: Any) -> bytes:
    return json.dumps(node, sort_keys=True).encode()
