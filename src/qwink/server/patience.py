"""Time limits that a shutdown ends early, so that their requests get a response of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Patience:
    """Limits of what goes on at the same time. After `end` nothing has time left: `over` is True.

    Use it in one event loop.
    """

    def __init__(self) -> None:
        self.over = False
        self._limits: set[asyncio.Timeout] = set()

    @asynccontextmanager
    async def limit(self, seconds: float) -> AsyncIterator[None]:
        """Raises TimeoutError after `seconds`, or when `end` is called."""
        async with asyncio.timeout(0 if self.over else seconds) as limit:
            self._limits.add(limit)
            try:
                yield
            finally:
                self._limits.discard(limit)

    def end(self) -> None:
        """End all that goes on."""
        self.over = True
        now = asyncio.get_running_loop().time()
        for limit in self._limits:
            if not limit.expired():  # else its time ended just now
                limit.reschedule(now)
