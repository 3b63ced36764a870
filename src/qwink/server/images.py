"""/v1/images: clients upload a picture once and refer to it in later requests."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from qwink.server.auth import client_of
from qwink.server.failures import Failure
from qwink.server.forms import content_of
from qwink.server.service import ModelService
from qwink.server.uploads import Upload


def image_routes(service: ModelService) -> APIRouter:
    router = APIRouter()
    binary = {"schema": {"type": "string", "format": "binary"}}
    form = {"schema": {"type": "object", "properties": {"file": binary["schema"]}}}
    body = {
        "required": True,
        "content": {"application/octet-stream": binary, "multipart/form-data": form},
    }

    @router.post("/v1/images", summary="Upload a picture", openapi_extra={"requestBody": {**body}})
    async def upload(http: Request) -> Response:
        """The body is the picture's file, or a form with the file in its field `file`. Requests
        refer to the picture by giving the returned `id` as `image_url.url`. The id is
        `qwink:sha256:` and the SHA-256 of the file.
        """
        content = await content_of(http)
        found = await service.work(service.uploads.add, content, client_of(http.scope))
        return JSONResponse(_document(found))

    @router.get("/v1/images", summary="Check which pictures are stored")
    async def stored(http: Request) -> dict[str, Any]:
        """The pictures of `?id=...&id=...` (ids or hashes) that are stored. Those that are not
        stored are left out.
        """
        names = dict.fromkeys(http.query_params.getlist("id"))
        if not names:
            raise Failure(
                400, "id is missing; give ?id=..., once for each picture", "missing_field", "id"
            )
        client = client_of(http.scope)
        # All at once: together they wait for the shared store as long as one does.
        found = await asyncio.gather(
            *(service.fetch(service.uploads.find, name, client) for name in names)
        )
        return {"object": "list", "data": [_document(upload) for upload in found if upload]}

    @router.head("/v1/images/{key}", summary="Check whether a picture is stored")
    async def is_stored(key: str, http: Request) -> Response:
        """200 if the picture is stored, else 404. `key` is an `id`, or the hash alone."""
        upload = await service.fetch(service.uploads.find, key, client_of(http.scope))
        return Response(status_code=404 if upload is None else 200)

    return router


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
