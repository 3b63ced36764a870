"""Lists of objects, a page at a time, as in OpenAI's API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qwink.server.failures import Failure


def page_of(
    documents: list[dict[str, Any]], query: Mapping[str, str], default: int, most: int
) -> dict[str, Any]:
    """The page that `limit` and `after` (an id) ask for. Raises Failure for bad values."""
    limit = query.get("limit", str(default))
    if not limit.isdecimal() or not 1 <= int(limit) <= most:
        raise Failure(400, f"limit must be from 1 to {most}", "invalid_value", "limit")
    after = query.get("after")
    if after:
        ids = [document["id"] for document in documents]
        if after not in ids:
            raise Failure(400, "after must be an id of this list", "invalid_value", "after")
        documents = documents[ids.index(after) + 1 :]
    page = documents[: int(limit)]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(documents) > len(page),
    }
