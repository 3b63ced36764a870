"""Reads the pictures of a request: data URLs, uploads and, if allowed, web addresses."""

from __future__ import annotations

from dataclasses import replace

from qwink.errors import ImageError
from qwink.runtime.messages import Picked
from qwink.runtime.preparation import ImageOptions
from qwink.runtime.stopwatch import Stopwatch
from qwink.server.failures import Failure
from qwink.server.options import ServerOptions
from qwink.server.schema import ChatRequest, ImageUrl, Part
from qwink.server.uploads import SCHEME, Uploads
from qwink.types import Message, Task

# OpenAI's `detail` of a picture, and the task whose picture size it stands for.
_TASKS: dict[str, Task] = {"low": "describe", "high": "document"}


class Pictures:
    """Converts a request's messages to Message. Runs in a worker thread, since a fetch blocks."""

    def __init__(self, options: ServerOptions, uploads: Uploads) -> None:
        self._options, self._uploads = options, uploads

    def messages(self, request: ChatRequest, watch: Stopwatch) -> list[Message]:
        """The request's messages. Raises Failure, naming the field, for a picture it cannot get."""
        limit = self._options.max_images
        if sum(part.image_url is not None for m in request.messages for part in m.content) > limit:
            message = f"more than {limit} pictures; send fewer (this server's --max-images)"
            raise Failure(400, message, "too_many_images", "messages")
        sizes = replace(image_options(request), max_image_pixels=self._options.max_image_pixels)
        turns = []
        for number, message in enumerate(request.messages):
            parts = tuple(
                self._part(part, sizes, watch, _place(number, index))
                for index, part in enumerate(message.content)
            )
            role = "system" if message.role == "developer" else message.role
            turns.append(Message(role, parts))
        return turns

    def _part(self, part: Part, sizes: ImageOptions, watch: Stopwatch, place: str) -> str | Picked:
        if part.image_url is None:
            return part.text or ""
        task = _TASKS.get(part.image_url.detail or "auto", sizes.task)
        return Picked(self._source(part.image_url, watch, place), replace(sizes, task=task))

    def _source(self, image: ImageUrl, watch: Stopwatch, place: str) -> str | bytes:
        url = image.url
        scheme = url.partition(":")[0].lower()
        if scheme == "data":
            return url  # `prepare` decodes it and counts the time as stage decode
        if url.startswith(SCHEME):
            upload = self._uploads.find(url)
            if upload is None:
                message = f"{place}: this picture is not stored here; upload it to /v1/images first"
                raise Failure(400, message, "image_not_found", place)
            return upload.content
        if scheme in ("http", "https"):
            with watch.stage("fetch"):
                return self._fetch(url, place)
        message = (
            f"{place} must be a data URL, {SCHEME}sha256:... of an uploaded picture, or http(s)"
        )
        raise Failure(400, message, "invalid_value", place)

    def _fetch(self, url: str, place: str) -> bytes:
        options = self._options
        if not (options.allow_url_host or options.allow_public_urls):
            message = (
                f"{place}: this server does not fetch from the web; send the picture as a data "
                "URL (or start it with --allow-url-host HOST)"
            )
            raise Failure(400, message, "url_not_allowed", place)
        from qwink.inputs.fetch import FetchPolicy, fetch

        policy = FetchPolicy(
            hosts=frozenset(options.allow_url_host),
            public=options.allow_public_urls,
            max_bytes=options.max_body,
            timeout_s=options.fetch_timeout,
        )
        try:
            return fetch(url, policy)
        except ImageError as error:
            raise Failure(400, f"{place}: {error}", "image_not_fetched", place) from None


def image_options(request: ChatRequest) -> ImageOptions:
    """The size options of all pictures of the request; a picture's `detail` overrides its task."""
    nested = request.mm_processor_kwargs
    low, high = request.min_pixels, request.max_pixels
    if nested is not None:
        low = nested.min_pixels if low is None else low
        high = nested.max_pixels if high is None else high
    return ImageOptions(request.task or "auto", low, high)


def place_of(request: ChatRequest, index: int) -> str:
    """The field that holds the request's picture number `index`."""
    places = [
        _place(number, position)
        for number, message in enumerate(request.messages)
        for position, part in enumerate(message.content)
        if part.image_url is not None
    ]
    return places[index]


def _place(message: int, part: int) -> str:
    return f"messages[{message}].content[{part}].image_url.url"
