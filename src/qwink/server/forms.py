"""Bodies that are forms (multipart/form-data), with one file at most."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from fastapi import Request
from starlette.datastructures import FormData, Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from qwink.server.failures import Failure
from qwink.server.limits import body_of

_MOST_FIELDS = 8


def is_form(http: Request) -> bool:
    kind = http.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "multipart/form-data"


async def read_form(http: Request) -> FormData:
    """The form in the body. Raises Failure if it cannot be read."""
    return await _parse(http.headers, bytes(body_of(http.scope).take()))


async def content_of(http: Request) -> bytes:
    """The body, or the file of a form. Raises Failure for a form without a file."""
    return await file_in(http, bytes(body_of(http.scope).take()))


async def file_in(http: Request, body: bytes) -> bytes:
    """As `content_of`, for a body that was taken."""
    if not is_form(http):
        return body
    file = (await _parse(http.headers, body)).get("file")
    if not isinstance(file, UploadFile):
        raise Failure(
            400, "the form has no file; send it in the field 'file'", "missing_field", "file"
        )
    content = await file.read()
    await file.close()
    return content


async def _parse(headers: Headers, body: bytes) -> FormData:
    parser = _InMemoryParser(headers, _once(body), max_files=1, max_fields=_MOST_FIELDS)
    try:
        return await parser.parse()
    except (MultiPartException, KeyError) as error:
        reason = getattr(error, "message", "it has no boundary")
        raise Failure(400, f"the form cannot be read: {reason}", "invalid_form") from None


class _InMemoryParser(MultiPartParser):
    """Writes no temporary files: the whole body is in memory already."""

    spool_max_size = 1 << 40


async def _once(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body
