"""/v1/batches: many requests in a file, answered in the background, as in OpenAI's API."""

from __future__ import annotations

import re
from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict

from qwink.server.auth import client_of
from qwink.server.exchange import parse
from qwink.server.failures import Failure
from qwink.server.files import PURPOSE, keep_seconds
from qwink.server.job_runner import JobRunner
from qwink.server.job_store import StoredBatch
from qwink.server.limits import body_of
from qwink.server.paging import page_of

MOST_UNFINISHED = 100  # batches of one owner
_WINDOW = re.compile(r"([1-9][0-9]{0,5})([mhd])")
_SECONDS = {"m": 60, "h": 3600, "d": 86_400}
_MOST_METADATA, _LONGEST_KEY, _LONGEST_VALUE = 16, 64, 512  # as OpenAI's


class Keep(BaseModel):
    """How long the output files are kept."""

    model_config = ConfigDict(extra="ignore")
    anchor: str
    seconds: int


class BatchRequest(BaseModel):
    """The body of POST /v1/batches."""

    model_config = ConfigDict(extra="ignore")
    input_file_id: str
    endpoint: Literal["/v1/chat/completions", "/v1/responses"]
    completion_window: str = "24h"
    metadata: dict[str, str] | None = None
    output_expires_after: Keep | None = None


def job_routes(runner: JobRunner) -> APIRouter:
    router = APIRouter()
    reference = {"$ref": "#/components/schemas/BatchRequest"}
    body = {"required": True, "content": {"application/json": {"schema": reference}}}

    def find(http: Request, batch_id: str) -> StoredBatch:
        owner = client_of(http.scope)
        try:
            batch = runner.store().batch(batch_id)
        except KeyError:
            batch = None
        if batch is None or batch.owner != owner:
            raise Failure(404, f"no such batch: {batch_id[:80]}", "batch_not_found", "batch_id")
        return batch

    @router.post("/v1/batches", summary="Start a batch", openapi_extra={"requestBody": body})
    async def create(http: Request) -> Response:
        """Answer the requests of an uploaded file (POST /v1/files) while nothing else waits. Each
        line is `{"custom_id": ..., "method": "POST", "url": ENDPOINT, "body": REQUEST}`.
        """
        store, owner = runner.store(), client_of(http.scope)
        request = parse(BatchRequest, body_of(http.scope).take())
        window = _WINDOW.fullmatch(request.completion_window)
        if window is None:
            message = 'completion_window must be a time such as "24h", "30m" or "7d"'
            raise Failure(400, message, "invalid_value", "completion_window")
        _check_metadata(request.metadata)
        keep = request.output_expires_after
        keep_s = keep_seconds(keep.anchor, keep.seconds, "output_expires_after") if keep else None
        file = store.file(request.input_file_id, owner)
        if file is None or file.purpose != PURPOSE:
            message = "no such input file; upload it with purpose batch to /v1/files"
            raise Failure(400, message, "file_not_found", "input_file_id")
        if sum(batch.owner == owner for batch in store.unfinished()) >= MOST_UNFINISHED:
            message = f"{MOST_UNFINISHED} of your batches are not finished; wait or cancel some"
            raise Failure(429, message, "too_many_batches")
        batch = store.add_batch(
            owner,
            request.endpoint,
            file.id,
            request.completion_window,
            int(window[1]) * _SECONDS[window[2]],
            request.metadata,
            keep_s,
        )
        runner.wake()
        return JSONResponse(batch_document(batch))

    @router.get("/v1/batches", summary="List batches")
    async def batches(http: Request) -> dict[str, Any]:
        """Your batches, the newest first: `limit`, `after`."""
        found = runner.store().batches(client_of(http.scope))
        return page_of([batch_document(batch) for batch in found], http.query_params, 20, 100)

    @router.get("/v1/batches/{batch_id}", summary="Read how far a batch is")
    async def batch(http: Request, batch_id: str) -> dict[str, Any]:
        """Its status, counts, and at the end the ids of its output and error files."""
        return batch_document(find(http, batch_id))

    @router.post("/v1/batches/{batch_id}/cancel", summary="Cancel a batch")
    async def cancel(http: Request, batch_id: str) -> dict[str, Any]:
        """The answers so far are kept in the output file."""
        found, store = find(http, batch_id), runner.store()
        if found.status in ("validating", "in_progress"):
            store.set_status(found.id, "cancelling")
            runner.wake()
        elif found.status != "cancelling":
            message = f"the batch is {found.status} and cannot be cancelled any more"
            raise Failure(409, message, "batch_ended", "batch_id")
        return batch_document(store.batch(found.id))

    return router


def batch_document(batch: StoredBatch) -> dict[str, Any]:
    """OpenAI's batch object."""
    times = ("in_progress", "expires", "finalizing", "completed", "failed", "expired")
    errors = None if batch.errors is None else {"object": "list", "data": batch.errors}
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "errors": errors,
        "input_file_id": batch.input_file_id,
        "completion_window": batch.completion_window,
        "status": batch.status,
        "output_file_id": batch.output_file_id,
        "error_file_id": batch.error_file_id,
        "created_at": batch.created_at,
        **{f"{name}_at": getattr(batch, f"{name}_at") for name in times},
        "cancelling_at": batch.cancelling_at,
        "cancelled_at": batch.cancelled_at,
        "request_counts": {
            "total": batch.total,
            "completed": batch.completed,
            "failed": batch.failed,
        },
        "metadata": batch.metadata,
    }


def _check_metadata(metadata: dict[str, str] | None) -> None:
    for key, value in (metadata or {}).items():
        if len(key) > _LONGEST_KEY or len(value) > _LONGEST_VALUE:
            sizes = f"keys {_LONGEST_KEY}, values {_LONGEST_VALUE}"
            message = f"metadata is too long; characters at most: {sizes}"
            raise Failure(400, message, "invalid_value", "metadata")
    if len(metadata or {}) > _MOST_METADATA:
        message = f"metadata has {_MOST_METADATA} entries at most"
        raise Failure(400, message, "invalid_value", "metadata")
