"""Connections for `fetch`: to checked addresses only, and within one deadline."""

from __future__ import annotations

import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import httpcore

# Raises FetchError unless all addresses of a host at a port may be connected to.
Check = Callable[[str, int, Sequence[str]], None]


class Deadline:
    """The end of the time that all steps of a fetch share."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds until the end, above 0. Raises TimeoutError after it."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


class Network(httpcore.NetworkBackend):
    """Connects to an address of the one look-up that `check` accepted."""

    def __init__(self, check: Check, deadline: Deadline) -> None:
        self._check, self._deadline = check, deadline
        self._sockets = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        addresses = _resolve(host, port, self._deadline)
        self._check(host, port, addresses)
        failure: Exception | None = None
        for address in addresses:
            try:
                stream = self._sockets.connect_tcp(
                    address, port, self._deadline.left(), None, socket_options
                )
            except httpcore.ConnectError as error:  # for example IPv6 on a machine without it
                failure = error
            else:
                return _Stream(stream, self._deadline)
        assert failure is not None
        raise failure


class _Stream(httpcore.NetworkStream):
    """A connection whose reads and writes end at the deadline, however slowly bytes come."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: Deadline) -> None:
        self._stream, self._deadline = stream, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._deadline.left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._deadline.left())

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        stream = self._stream.start_tls(ssl_context, server_hostname, self._deadline.left())
        return _Stream(stream, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _resolve(host: str, port: int, deadline: Deadline) -> list[str]:
    """The addresses of a name, in the order to try them; none if there is no such name.

    Runs in a thread, since the system's resolver has no timeout. Raises TimeoutError.
    """
    answers: queue.SimpleQueue[list[str]] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            answers.put(addresses_of(host, port))
        except Exception:
            answers.put([])

    threading.Thread(target=look_up, name="qwink-resolve", daemon=True).start()
    try:
        return answers.get(timeout=deadline.left())
    except queue.Empty:
        raise TimeoutError from None


def addresses_of(host: str, port: int) -> list[str]:
    """What the system's resolver says. Raises OSError or UnicodeError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))
