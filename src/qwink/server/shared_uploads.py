"""Uploads in a store that several servers share.

An entry is named and encrypted with the API key of the client that put it (its digest), and with
the store's secret if there is one: other clients cannot find it, and whoever reads the store cannot
read it. A server without API keys and without a secret stores uploads as they are.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import wait

from qwink.cache.entry import Unusable
from qwink.cache.redis import RedisStore
from qwink.cache.seal import Seal


class SharedUploads:
    """Pictures and videos by the SHA-256 of their bytes. Thread-safe."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    def put(self, key: str, content: bytes, client: str) -> None:
        """Keep a file of a client, in the background."""
        seal = self._seal(client)
        name = seal.name("upload", key)
        size = len(content) + seal.overhead
        self._store.put(name, size, lambda: seal.seal(name, [content]))

    def find(self, key: str, client: str, patience_s: float) -> bytes | None:
        """A file that this client put; None if it is not there, or does not come in time."""
        seal = self._seal(client)
        name = seal.name("upload", key)

        def read(data: bytes) -> bytes:
            content = seal.unseal(name, data)
            if hashlib.sha256(content).hexdigest() != key:
                raise Unusable
            return content

        fetch = self._store.fetch(name, self._store.options.max_entry_bytes, read)
        wait([fetch], patience_s)
        return None if fetch.cancel() else fetch.result()

    def _seal(self, client: str) -> Seal:
        return Seal(self._store.options.secret, client.encode())
