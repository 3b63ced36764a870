"""Logs each request, and other events, as one line of JSON on stderr.

Logs hold no texts, pictures, URLs or keys. Paths appear only as routes.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
import uuid
import warnings
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qwink.server.failures import CLIENT_GONE, Failure, as_failure
from qwink.server.fields import printable
from qwink.server.metrics import Metrics

if TYPE_CHECKING:
    from qwink.server.traces import Traces

logger = logging.getLogger(__name__)

_REQUEST_ID = re.compile(rb"[\w.:-]{1,128}")
_KEY = "qwink"


@dataclass(slots=True)
class Record:
    """What the log line of one request says. Handlers add to `details`.

    `answer_began` is when its answer's times began, on the clock of `time.perf_counter`.
    `elsewhere`: another server answers the request, and logs and counts it.
    """

    request_id: str
    details: dict[str, Any] = field(default_factory=dict)
    status: int = 0
    answer_began: float = 0.0
    client_gone: bool = False
    elsewhere: bool = False


def record_of(scope: Scope) -> Record:
    """The record of the request that `scope` belongs to."""
    record: Record = scope[_KEY]
    return record


class AccessLog:
    """The outermost middleware: request ids, the log line and metrics of each request.

    It also turns exceptions that no handler caught into a response.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        paths: frozenset[str],
        traces: Traces | None = None,
    ) -> None:
        """`paths` are logged for requests that were refused before routing; others are not."""
        self._app, self._metrics, self._paths = app, metrics, paths
        self._traces = traces

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
            if record.status:  # the response has begun: only closing the connection is left
                logger.exception(
                    "a response was not completed", extra={"request_id": record.request_id}
                )
                record.details["broke_off"] = type(error).__name__
            else:
                logger.exception("a request failed", extra={"request_id": record.request_id})
                await respond(as_failure(error), scope, receive, send_with_id)
        finally:
            if not record.elsewhere:
                self._tell(scope, record, start)

    def _tell(self, scope: Scope, record: Record, start: float) -> None:
        end = time.perf_counter()
        seconds = end - start
        status = CLIENT_GONE if record.client_gone else record.status or 500
        known = scope["path"] if scope["path"] in self._paths else "unmatched"
        route = getattr(scope.get("route"), "path", None) or known
        self._metrics.count_request(route, status, seconds)
        entry = {
            "request_id": record.request_id,
            "method": scope["method"],
            "route": route,
            "status": status,
            "ms": round(seconds * 1e3, 1),
        }
        logger.info("request", extra={"fields": entry | record.details})
        if self._traces is not None:
            from qwink.server.traces import Times

            times = Times(start, record.answer_began or start, end, time.time_ns())
            self._traces.add(scope, entry, record.details, times)


def failure_response(failure: Failure, scope: Scope) -> Response:
    """The response that says why a request failed. The request's log line gets code and param."""
    details = record_of(scope).details
    details["code"] = failure.code
    if failure.param is not None:
        details["param"] = printable(failure.param)
    return JSONResponse(failure.document(), failure.status, failure.headers)


async def respond(failure: Failure, scope: Scope, receive: Receive, send: Send) -> None:
    """Send a Failure as a response."""
    await failure_response(failure, scope)(scope, receive, send)


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return str(value.decode("ascii"))
    return f"req-{uuid.uuid4().hex}"


class JsonLines(logging.Formatter):
    """Formats log records as JSON, one per line."""

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
    # Python's warnings, such as Pillow's about damaged files, in one line each.
    warnings.formatwarning = lambda message, category, *_: f"{category.__name__}: {message}"
    logging.captureWarnings(True)
    logging.getLogger("qwink").setLevel(logging.INFO)
    # uvicorn warns about malformed requests of clients; the server's log leaves these out.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
