"""One JSON line on stderr for each request, and for whatever else is worth a word.

No payloads: neither texts, pictures, URLs nor keys. Paths only as routes.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qwink.server.failures import CLIENT_GONE, as_failure
from qwink.server.metrics import Metrics

logger = logging.getLogger(__name__)

_REQUEST_ID = re.compile(rb"[\w.:-]{1,128}")
_KEY = "qwink"


@dataclass(slots=True)
class Record:
    """What is told of one request. `details` are added by whoever knows them."""

    request_id: str
    details: dict[str, Any] = field(default_factory=dict)
    status: int = 0
    client_gone: bool = False


def record_of(scope: Scope) -> Record:
    """The record of the request at hand."""
    record: Record = scope[_KEY]
    return record


class Access:
    """The outermost layer: request ids in and out, one log line, metrics, the last resort."""

    def __init__(self, app: ASGIApp, metrics: Metrics, paths: frozenset[str]) -> None:
        """`paths` may be told of a request that was refused before its route was found."""
        self._app, self._metrics, self._paths = app, metrics, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = scope[_KEY] = Record(_request_id(scope))
        start = time.perf_counter()

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                message["headers"] = [
                    *message.get("headers", []),
                    (b"x-request-id", record.request_id.encode()),
                ]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception as error:
            if record.status:  # too late to say so: the connection is closed
                logger.exception("a response broke off", extra={"request_id": record.request_id})
                record.details["broke_off"] = type(error).__name__
            else:
                logger.exception("a request failed", extra={"request_id": record.request_id})
                await respond(as_failure(error), scope, receive, send_with_id)
        finally:
            seconds = time.perf_counter() - start
            status = CLIENT_GONE if record.client_gone else record.status or 500
            known = scope["path"] if scope["path"] in self._paths else "unmatched"
            route = getattr(scope.get("route"), "path", None) or known
            self._metrics.request(route, status, seconds)
            told = {
                "request_id": record.request_id,
                "method": scope["method"],
                "route": route,
                "status": status,
                "ms": round(seconds * 1e3, 1),
            }
            logger.info("request", extra={"fields": told | record.details})


async def respond(error: Any, scope: Scope, receive: Receive, send: Send) -> None:
    """Send a Failure as a response."""
    from starlette.responses import JSONResponse

    response = JSONResponse(error.document(), error.status, error.headers)
    await response(scope, receive, send)


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return str(value.decode("ascii"))
    return f"req-{uuid.uuid4().hex}"


class JsonLines(logging.Formatter):
    """Log records as JSON, one a line."""

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        request_id = getattr(record, "request_id", None)
        if request_id:
            document["request_id"] = request_id
        document |= getattr(record, "fields", {})
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document, ensure_ascii=False, default=str)


def set_up() -> None:
    """Send all logs of this process to stderr as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("qwink").setLevel(logging.INFO)
    # A client's broken request is told to the client, in the access line or not at all.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
