"""Content-Encoding of request bodies: unpacked piece by piece, so that no piece is large."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Protocol

from qwink.server.failures import Failure

ACCEPTED = "gzip, deflate"
_PIECE = 256 << 10  # bytes of unpacked content that are made at a time


class Unpacker(Protocol):
    def unpack(self, chunk: bytes) -> Iterator[bytes]:
        """The content of a chunk of the body, in pieces. Raises Failure for damaged data."""
        ...

    def finish(self) -> None:
        """Raises Failure if the packed data is incomplete."""
        ...


def unpacker_of(encoding: str) -> Unpacker:
    """For the header Content-Encoding. Raises Failure for what is not supported."""
    names = [name.strip().lower() for name in encoding.split(",")]
    names = [name for name in names if name not in ("", "identity")]
    if not names:
        return _Plain()
    if len(names) == 1 and names[0] in ("gzip", "x-gzip", "deflate"):
        return _Zlib(raw_allowed=names[0] == "deflate")
    message = f"this Content-Encoding is not supported; send the body as it is, or as {ACCEPTED}"
    headers = {"Accept-Encoding": ACCEPTED, "Connection": "close"}
    return _refuse(Failure(415, message, "unsupported_encoding", headers=headers))


def _refuse(failure: Failure) -> Unpacker:
    raise failure


class _Plain:
    def unpack(self, chunk: bytes) -> Iterator[bytes]:
        yield chunk

    def finish(self) -> None:
        pass


class _Zlib:
    """gzip (RFC 1952, one member or several) and deflate: zlib (RFC 1950) or, as some clients
    send it, without zlib's header (RFC 1951).
    """

    def __init__(self, raw_allowed: bool) -> None:
        self._raw_allowed = raw_allowed
        self._library = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # detects gzip and zlib
        self._begun = False

    def unpack(self, chunk: bytes) -> Iterator[bytes]:
        while chunk:
            if self._library.eof:  # another member of a gzip file
                if self._raw_allowed:
                    raise _damaged()
                self._library = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
            piece, chunk = self._piece(chunk)
            self._begun = True
            if piece:
                yield piece

    def _piece(self, chunk: bytes) -> tuple[bytes, bytes]:
        """The next piece, and what is left of the chunk."""
        try:
            piece = self._library.decompress(chunk, _PIECE)
        except zlib.error:
            if self._begun or not self._raw_allowed:
                raise _damaged() from None
            self._raw_allowed, self._begun = True, True
            self._library = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
            return self._piece(chunk)
        if self._library.eof:
            return piece, self._library.unused_data
        return piece, self._library.unconsumed_tail

    def finish(self) -> None:
        if self._begun and not self._library.eof:
            raise _damaged()


def _damaged() -> Failure:
    message = "the compressed body is damaged or incomplete; check Content-Encoding"
    headers = {"Connection": "close"}
    return Failure(400, message, "invalid_encoding", headers=headers)
