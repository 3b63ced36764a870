"""Maps errors to what clients get: an HTTP status and OpenAI's error object."""

from __future__ import annotations

import re
from typing import Any

from pydantic import ValidationError

from qwink.errors import (
    ContextOverflow,
    DeadlineExceeded,
    EngineStopped,
    FetchError,
    GenerationError,
    ImageError,
    ImageTooLarge,
    OptionError,
    OutOfMemory,
    Overloaded,
    PromptError,
    QwinkError,
    RequestEnded,
)

CLIENT_GONE = 499  # nginx's status for a client that disconnected; for logs and metrics only

_TEMPORARY = (429, 503)  # all of them say when to try again
_RETRY_AFTER_S = "5"
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


# A client cannot raise it.
_SERVER_LIMIT = "start the server with a larger --max-image-pixels"


class Failure(Exception):
    """An error to send to the client: a request was refused, or it failed while running."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param
        self.headers = headers or {}
        if status in _TEMPORARY:
            self.headers.setdefault("Retry-After", _RETRY_AFTER_S)

    def document(self) -> dict[str, Any]:
        """The response's JSON: OpenAI's error object."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        error = {
            "message": self.message,
            "type": _TYPES.get(self.status, kind),
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}


def not_ready(message: str) -> Failure:
    return Failure(503, message, "not_ready", headers={"Retry-After": "2"})


def shutting_down() -> Failure:
    return Failure(503, "the server is shutting down", "shutting_down")


def overloaded(retry_after: int) -> Failure:
    return Failure(
        429,
        f"too many requests are running or waiting; try again in {retry_after} s",
        "overloaded",
        headers={"Retry-After": str(retry_after)},
    )


def as_failure(error: BaseException, retry_after: int = 1) -> Failure:
    """The Failure to send for an error. Unexpected exceptions are reported without details."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, Overloaded):
        return overloaded(retry_after)
    if isinstance(error, RequestEnded):
        return _ended(error)
    if isinstance(error, GenerationError):
        return _final(500, str(error), "generation_failed")
    if isinstance(error, OutOfMemory):
        return _final(500, str(error), "out_of_memory")
    if isinstance(error, ImageTooLarge):
        message = str(error).replace("raise max_image_pixels", _SERVER_LIMIT)
        return Failure(400, message, _code(error))
    if isinstance(error, ImageError | PromptError | OptionError):
        return Failure(400, str(error), _code(error), _param(error))
    if isinstance(error, QwinkError):
        return _final(500, "the server cannot answer; its log gives the reason", "server_error")
    return _final(500, "internal error; the server's log gives the reason", "internal_error")


def no_such_path(base: str) -> Failure:
    """`base` is the URL of this server, without a final slash."""
    message = (
        f"there is nothing at this path; the base URL for OpenAI's clients is {base}/v1, which "
        f"gives {base}/v1/chat/completions; {base}/docs lists all paths"
    )
    return Failure(404, message, "not_found")


def invalid(error: ValidationError) -> Failure:
    """A Failure for the first error in a request's JSON. It never quotes the request's values."""
    first = error.errors(include_url=False, include_input=False)[0]
    param = param_of(first["loc"])
    if first["type"] == "json_invalid":
        return Failure(400, f"the body is not valid JSON: {first['msg']}", "invalid_json")
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, Failure):
        field = getattr(cause, "field", None)
        param = param_of((*first["loc"], field)) if field else param
        message = cause.message if param in cause.message else f"{param}: {cause.message}"
        return Failure(cause.status, message, cause.code, param or None)
    if first["type"] == "missing":
        return Failure(400, f"{param} is missing", "missing_field", param)
    reason = str(cause) if cause is not None else first["msg"]
    message = f"{param}: {reason}" if param else reason
    return Failure(400, message, "invalid_value", param or None)


def param_of(location: tuple[int | str, ...]) -> str:
    """The path of a field: ("messages", 0, "content") gives "messages[0].content"."""
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path


def _ended(error: RequestEnded) -> Failure:
    if isinstance(error, DeadlineExceeded):
        return _final(504, "the answer took longer than this server allows", "deadline_exceeded")
    if isinstance(error, EngineStopped):
        return Failure(503, "the engine has stopped", "engine_stopped")
    return Failure(CLIENT_GONE, "the request was cancelled", "cancelled")


def _final(status: int, message: str, code: str) -> Failure:
    # OpenAI's clients retry after a 5xx unless this header forbids it.
    return Failure(status, message, code, headers={"x-should-retry": "false"})


def _code(error: QwinkError) -> str:
    if isinstance(error, ContextOverflow):
        return "context_length_exceeded"
    if isinstance(error, FetchError):
        return "image_not_fetched"
    if isinstance(error, ImageTooLarge):
        return "image_too_large"
    return "invalid_image" if isinstance(error, ImageError) else "invalid_value"


def _param(error: QwinkError) -> str | None:
    """The option that an OptionError is about: its messages begin with the option's name."""
    found = re.match(r"([a-z_]+)(?: is |=)", str(error))
    return found[1] if found and isinstance(error, OptionError) else None
