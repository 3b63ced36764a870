"""Errors as clients see them: an HTTP status and OpenAI's error object."""

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

CLIENT_GONE = 499  # nginx's number, for logs and metrics; nobody is there to read it

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class Failure(Exception):
    """Why a request is refused or broke off."""

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

    def document(self) -> dict[str, Any]:
        """OpenAI's error object."""
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
        f"too many requests are under way; try again in {retry_after} s",
        "overloaded",
        headers={"Retry-After": str(retry_after)},
    )


def as_failure(error: BaseException, retry_after: int = 1) -> Failure:
    """What to tell of an error. Of one that nobody foresaw: nothing."""
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
    if isinstance(error, ImageError | PromptError | OptionError):
        return Failure(400, str(error), _code(error), _param(error))
    if isinstance(error, QwinkError):
        return _final(500, "the server cannot answer; its log says why", "server_error")
    return _final(500, "something went wrong in the server", "internal_error")


def invalid(error: ValidationError) -> Failure:
    """The first thing wrong with a request's JSON. Values are never repeated."""
    first = error.errors(include_url=False, include_input=False)[0]
    param = param_of(first["loc"])
    if first["type"] == "json_invalid":
        return Failure(400, f"the body is not valid JSON: {first['msg']}", "invalid_json")
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, Failure):
        param = cause.param or param
        about = cause.message if param in cause.message else f"{param}: {cause.message}"
        return Failure(cause.status, about, cause.code, param or None)
    if first["type"] == "extra_forbidden":
        return Failure(400, f"unknown field {param}; leave it out", "unknown_field", param)
    if first["type"] == "missing":
        return Failure(400, f"{param} is missing", "missing_field", param)
    said = str(cause) if cause is not None else first["msg"]
    message = f"{param}: {said}" if param else said
    return Failure(400, message, "invalid_value", param or None)


def param_of(place: tuple[int | str, ...]) -> str:
    """("messages", 0, "content") is messages[0].content."""
    path = ""
    for step in place:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path


def _ended(error: RequestEnded) -> Failure:
    if isinstance(error, DeadlineExceeded):
        return _final(504, "the answer took longer than this server allows", "deadline_exceeded")
    if isinstance(error, EngineStopped):
        return Failure(503, "the engine has stopped", "engine_stopped")
    return Failure(CLIENT_GONE, "the request was cancelled", "cancelled")


def _final(status: int, message: str, code: str) -> Failure:
    # OpenAI's clients try again after a 5xx unless told otherwise.
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
    """Messages on options begin with the option's name."""
    found = re.match(r"([a-z_]+)(?: is |=)", str(error))
    return found[1] if found and isinstance(error, OptionError) else None
