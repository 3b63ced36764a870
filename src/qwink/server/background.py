"""Requests that the server makes of itself, for batches: the same as from outside, but marked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
from starlette.types import ASGIApp, Receive, Scope, Send

# In the scope of such a request: when it must have ended, on the clock of `time.monotonic`. No
# client can set it.
BACKGROUND = "qwink.background"


async def post(app: ASGIApp, path: str, body: bytes, marks: Mapping[str, Any]) -> httpx.Response:
    """The app's response to a POST with `marks` in its scope. Cancelling it cancels the request."""

    async def marked(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, **marks}, receive, send)

    transport = httpx.ASGITransport(marked, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, timeout=None) as client:
        return await client.post(
            f"http://localhost{path}", content=body, headers={"Content-Type": "application/json"}
        )
