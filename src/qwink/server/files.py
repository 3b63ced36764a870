"""/v1/files: the input and output files of batches, as in OpenAI's API."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, JSONResponse, Response
from starlette.datastructures import UploadFile

from qwink.server.auth import client_of
from qwink.server.failures import Failure
from qwink.server.forms import is_form, read_form
from qwink.server.job_runner import JobRunner
from qwink.server.job_store import StoredFile
from qwink.server.options import ServerOptions
from qwink.server.paging import page_of

PURPOSE = "batch"
_LEAST_S, _MOST_S = 3600, 2_592_000  # as OpenAI's expires_after


def file_routes(runner: JobRunner, options: ServerOptions) -> APIRouter:
    router = APIRouter()

    def find(http: Request, file_id: str) -> StoredFile:
        found = runner.store().file(file_id, client_of(http.scope))
        if found is None:
            raise Failure(404, f"no such file: {file_id[:80]}", "file_not_found", "file_id")
        return found

    @router.post("/v1/files", summary="Upload the input of a batch")
    async def upload(http: Request) -> Response:
        """A form with `file`, JSON lines, and `purpose`, which must be "batch"."""
        store, owner = runner.store(), client_of(http.scope)
        if not is_form(http):
            message = "the body must be a form; send Content-Type: multipart/form-data"
            raise Failure(415, message, "unsupported_media_type")
        form = await read_form(http)
        file, purpose = form.get("file"), form.get("purpose")
        if purpose != PURPOSE:
            message = f"purpose must be {PURPOSE!r}; for pictures there is POST /v1/images"
            raise Failure(400, message, "invalid_value", "purpose")
        if not isinstance(file, UploadFile):
            message = "the form has no file; send it in the field 'file'"
            raise Failure(400, message, "missing_field", "file")
        keep_s = keep_seconds(
            form.get("expires_after[anchor]"), form.get("expires_after[seconds]"), "expires_after"
        )
        content = await file.read()
        await form.close()
        if store.num_bytes(owner) + len(content) > options.files_mb << 20:
            message = f"your files would take more than {options.files_mb} MiB; delete some first"
            raise Failure(413, message, "file_quota_exceeded", "file")
        name = file.filename or "input.jsonl"
        return JSONResponse(
            file_document(store.add_file(owner, PURPOSE, name[:255], content, keep_s))
        )

    @router.get("/v1/files", summary="List files")
    async def files(http: Request) -> dict[str, Any]:
        """Your files, the newest first: `purpose`, `limit`, `after`, `order`."""
        query = http.query_params
        found = runner.store().files(client_of(http.scope), query.get("purpose"))
        order = query.get("order", "desc")
        if order not in ("asc", "desc"):
            raise Failure(400, "order must be asc or desc", "invalid_value", "order")
        documents = [file_document(file) for file in found]
        return page_of(documents if order == "desc" else documents[::-1], query, 10_000, 10_000)

    @router.get("/v1/files/{file_id}", summary="Read what is known of a file")
    async def file(http: Request, file_id: str) -> dict[str, Any]:
        """Its name, size and times."""
        return file_document(find(http, file_id))

    @router.get("/v1/files/{file_id}/content", summary="Download a file")
    async def content(http: Request, file_id: str) -> Response:
        """The bytes of the file."""
        found = find(http, file_id)
        # Never shown by a browser as a page of this server.
        return FileResponse(
            runner.store().path(found.id),
            media_type="application/octet-stream",
            headers={"X-Content-Type-Options": "nosniff"},
        )

    @router.delete("/v1/files/{file_id}", summary="Delete a file")
    async def delete(http: Request, file_id: str) -> dict[str, Any]:
        """Refused while a batch reads the file."""
        found, store = find(http, file_id), runner.store()
        if any(batch.input_file_id == found.id for batch in store.unfinished()):
            message = "a batch that is not finished reads this file; cancel the batch first"
            raise Failure(409, message, "file_in_use", "file_id")
        store.delete_file(found.id)
        return {"id": found.id, "object": "file", "deleted": True}

    return router


def keep_seconds(anchor: Any, seconds: Any, field: str) -> int | None:
    """How long to keep a file, of OpenAI's `expires_after`; None for ever. Raises Failure."""
    if anchor is None and seconds is None:
        return None
    if anchor != "created_at":
        message = f"{field}[anchor] must be created_at"
        raise Failure(400, message, "invalid_value", f"{field}[anchor]")
    text = str(seconds)
    if not text.isdecimal() or not _LEAST_S <= int(text) <= _MOST_S:
        message = f"{field}[seconds] must be a whole number from {_LEAST_S} to {_MOST_S}"
        raise Failure(400, message, "invalid_value", f"{field}[seconds]")
    return int(text)


def file_document(file: StoredFile) -> dict[str, Any]:
    """OpenAI's file object."""
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": file.created_at,
        "expires_at": file.expires_at,
        "filename": file.filename,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
    }
