"""Reads the pictures of a request: data URLs, uploads and, if allowed, web addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from qwink.errors import ImageError
from qwink.inputs.data_urls import is_data_url
from qwink.runtime.messages import ImagePart
from qwink.runtime.preparation import ImageOptions
from qwink.runtime.stopwatch import Stopwatch
from qwink.server.asked import Asked, AskedPart, AskedPdf, AskedVideo
from qwink.server.failures import Failure
from qwink.server.options import ServerOptions
from qwink.server.uploads import NEEDED_S, SCHEME, Uploads
from qwink.types import Message, Video


class Pictures:
    """Gets the pictures of a request's turns."""

    def __init__(self, options: ServerOptions, uploads: Uploads) -> None:
        self._options, self._uploads = options, uploads

    def elsewhere(self, asked: Asked, client: str) -> dict[str, str]:
        """The URLs to `fetch` before `messages`, each with the field that holds it first.

        They are on the web, or name uploads that only the shared store may have.

        Raises Failure for a request with too many pictures, so that none is fetched.
        """
        parts = [part for turn in asked.turns for part in turn.parts]
        found: dict[str, str] = {}
        count, limit = 0, self._options.max_images
        for part in parts:
            if isinstance(part, str):
                continue
            urls = part.urls if isinstance(part, AskedVideo) else (part.url,)
            count += len(urls)
            if count > limit:
                message = f"more than {limit} pictures; send fewer (this server's --max-images)"
                field = part.place.partition("[")[0]
                raise Failure(400, message, "too_many_images", field)
            for url in urls:
                url = url.strip()
                if _is_on_the_web(url) or self._uploads.is_elsewhere(url, client):
                    found.setdefault(url, part.place)
        return found

    def messages(self, asked: Asked, fetched: Mapping[str, bytes], client: str) -> list[Message]:
        """The turns of a client; `fetched` has the content of each URL that is elsewhere.

        Raises Failure, naming the field, for a picture that it cannot get.
        """
        sizes = replace(asked.sizes, max_image_pixels=self._options.max_image_pixels)
        turns = []
        for turn in asked.turns:
            parts = [self._part(part, sizes, fetched, client) for part in turn.parts]
            turns.append(Message(turn.role, tuple(parts), turn.calls))
        return turns

    def _part(
        self,
        part: AskedPart,
        sizes: ImageOptions,
        fetched: Mapping[str, bytes],
        client: str,
    ) -> str | ImagePart:
        if isinstance(part, str):
            return part
        if isinstance(part, AskedVideo):
            sources = [self._source(url, fetched, part.place, client) for url in part.urls]
            video = Video(sources if part.of_pictures else sources[0], part.fps)
            return ImagePart(video, replace(sizes, video=part.options))
        if isinstance(part, AskedPdf):
            return ImagePart(part.url, replace(sizes, pdf=part.options))
        options = replace(sizes, task=part.task or sizes.task)
        return ImagePart(self._source(part.url, fetched, part.place, client), options)

    def _source(
        self, url: str, fetched: Mapping[str, bytes], place: str, client: str
    ) -> str | bytes:
        if is_data_url(url):
            return url  # `prepare` decodes it and counts the time as stage decode
        url = url.strip()
        if url in fetched:
            return fetched[url]
        if url.startswith(SCHEME):
            return self._upload(url, place, client)
        message = (
            f"{place} must be a data URL (data:image/png;base64,...), {SCHEME}sha256:... of an "
            "uploaded picture, or http(s)"
        )
        raise Failure(400, message, "invalid_value", place)

    def fetch(self, url: str, place: str, client: str, watch: Stopwatch) -> bytes:
        """The content of a URL, which takes a while. Raises Failure, naming the field."""
        with watch.stage("fetch"):
            if url.startswith(SCHEME):
                return self._upload(url, place, client)
            return self._fetch(url, place)

    def _upload(self, url: str, place: str, client: str) -> bytes:
        upload = self._uploads.find(url, client, NEEDED_S)
        if upload is None:
            message = f"{place}: this picture is not stored here; upload it to /v1/images first"
            raise Failure(400, message, "image_not_found", place)
        return upload.content

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


def _is_on_the_web(url: str) -> bool:
    return url.strip().partition(":")[0].lower() in ("http", "https")
