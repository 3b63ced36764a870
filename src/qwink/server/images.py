"""Pictures sent once, to be asked about many times: POST /v1/images, HEAD /v1/images/{key}."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from qwink.server.failures import Failure
from qwink.server.limits import body_of
from qwink.server.service import Service
from qwink.server.uploads import Upload


def image_routes(service: Service) -> APIRouter:
    router = APIRouter()
    binary = {"schema": {"type": "string", "format": "binary"}}
    form = {"schema": {"type": "object", "properties": {"file": binary["schema"]}}}
    body = {
        "required": True,
        "content": {"application/octet-stream": binary, "multipart/form-data": form},
    }

    @router.post("/v1/images", summary="Upload a picture", openapi_extra={"requestBody": {**body}})
    async def upload(http: Request) -> Response:
        """The body is the picture's file, or a form whose field `file` is. The answer's `id` goes
        into `image_url.url`; it is `qwink:sha256:` and the SHA-256 of the file.
        """
        content = await _content(http)
        found = await service.work(service.uploads.add, content)
        return JSONResponse(_document(found))

    @router.get("/v1/images", summary="Ask which pictures are known")
    async def which(http: Request) -> dict[str, Any]:
        """Of the pictures in `?id=...&id=...` (ids or hashes), those that can be referred to; no
        others are named.
        """
        names = dict.fromkeys(http.query_params.getlist("id"))
        if not names:
            raise Failure(400, "say which: ?id=..., as often as you like", "missing_field", "id")
        found = (service.uploads.find(name) for name in names)
        return {"object": "list", "data": [_document(upload) for upload in found if upload]}

    @router.head("/v1/images/{key}", summary="Ask whether a picture is known")
    async def known(key: str) -> Response:
        """200 if the picture can be referred to, else 404. `key` is an `id`, or the hash alone."""
        upload = service.uploads.find(key)
        return Response(status_code=404 if upload is None else 200)

    return router


async def _content(http: Request) -> bytes:
    kind = http.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = bytes(body_of(http.scope).take())
    if kind != "multipart/form-data":
        return body
    try:
        form = await _InMemory(http.headers, _once(body), max_files=1, max_fields=4).parse()
    except (MultiPartException, KeyError) as error:
        why = getattr(error, "message", "it has no boundary")
        raise Failure(400, f"the form cannot be read: {why}", "invalid_form") from None
    file = form.get("file")
    if not isinstance(file, UploadFile):
        raise Failure(400, "the form has no file; name its field file", "missing_field", "file")
    return await file.read()


class _InMemory(MultiPartParser):
    """Does without temporary files: the whole body is in memory already."""

    spool_max_size = 1 << 40


async def _once(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body


def _document(upload: Upload) -> dict[str, Any]:
    width, height = upload.size
    return {
        "id": upload.id,
        "object": "image",
        "bytes": len(upload.content),
        "width": width,
        "height": height,
        "format": upload.format,
        "warnings": list(upload.warnings),
    }
