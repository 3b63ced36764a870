"""The lines of a batch's input file, and of its output files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MOST_LINES = 50_000
_MOST_ERRORS = 20  # that a batch names


@dataclass(frozen=True, slots=True)
class Line:
    """A request in an input file: where its line begins, in bytes."""

    number: int  # from 1
    offset: int
    custom_id: str


def check_lines(path: Path, endpoint: str) -> tuple[list[Line], list[dict[str, Any]]]:
    """The requests of an input file, and what is wrong with it, as OpenAI's batch errors.

    Raises OSError.
    """
    lines: list[Line] = []
    errors: list[dict[str, Any]] = []
    ids: set[str] = set()
    for number, offset, text in _read(path):
        problem = _problem(text, endpoint, ids)
        if problem is None and len(lines) == MOST_LINES:
            problem = "too_many_requests", f"a batch has {MOST_LINES} requests at most", None
        if problem is not None:
            code, message, param = problem
            errors.append({"code": code, "message": message, "param": param, "line": number})
            if len(errors) == _MOST_ERRORS or code == "too_many_requests":
                break
            continue
        custom_id = json.loads(text)["custom_id"]
        ids.add(custom_id)
        lines.append(Line(number, offset, custom_id))
    if not lines and not errors:
        message = "the file has no request; write one JSON object a line"
        errors.append({"code": "empty_file", "message": message, "param": None, "line": None})
    return lines, errors


def read_body(path: Path, line: Line) -> bytes:
    """The body of a request. Raises OSError."""
    with path.open("rb") as file:
        file.seek(line.offset)
        return json.dumps(json.loads(file.readline())["body"]).encode()


def answered(batch_id: str, line: Line, status: int, request_id: str, body: Any) -> str:
    """A line of the output file, or of the error file if the status says so."""
    response = {"status_code": status, "request_id": request_id, "body": body}
    return _result(batch_id, line, response, None)


def unanswered(batch_id: str, line: Line, code: str, message: str) -> str:
    """A line of the error file, for a request that was not run."""
    return _result(batch_id, line, None, {"code": code, "message": message})


def _result(batch_id: str, line: Line, response: Any, error: Any) -> str:
    document = {
        "id": f"batch_req_{batch_id.removeprefix('batch_')[:16]}{line.number:08}",
        "custom_id": line.custom_id,
        "response": response,
        "error": error,
    }
    return json.dumps(document, ensure_ascii=True)


def _read(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Number, offset and text of the lines that are not empty."""
    offset = 0
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            if text.strip():
                yield number, offset, text
            offset += len(text)


def _problem(text: bytes, endpoint: str, ids: set[str]) -> tuple[str, str, str | None] | None:
    """Code, message and param of what is wrong with a line, if anything is."""
    try:
        request = json.loads(text)
    except (ValueError, RecursionError):
        return "invalid_json_line", "this line is not valid JSON", None
    if not isinstance(request, dict):
        return "invalid_json_line", "this line is not a JSON object", None
    custom_id, body = request.get("custom_id"), request.get("body")
    if not isinstance(custom_id, str) or not custom_id:
        return "missing_custom_id", "custom_id must be a text", "custom_id"
    if custom_id in ids:
        return "duplicate_custom_id", "custom_id occurs in an earlier line too", "custom_id"
    if request.get("method", "POST") != "POST":
        return "invalid_method", "method must be POST", "method"
    if request.get("url") != endpoint:
        return "invalid_url", f"url must be the batch's endpoint, {endpoint}", "url"
    if not isinstance(body, dict):
        return "missing_body", "body must be an object: the request", "body"
    if body.get("stream"):
        return "invalid_body", "stream must be left out: a batch has no streams", "body.stream"
    return None
