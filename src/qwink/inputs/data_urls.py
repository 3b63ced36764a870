"""Data URLs (RFC 2397) → bytes, in each spelling that browsers and libraries accept."""

from __future__ import annotations

import base64
import binascii
import string
from urllib.parse import unquote_to_bytes

from qwink.errors import ImageError

# The url-safe alphabet (RFC 4648, section 5) in terms of the usual one.
_USUAL_ALPHABET = bytes.maketrans(b"-_", b"+/")
_WHITESPACE = string.whitespace.encode()
# WHATWG's URL standard removes these at both ends: controls and the space.
_AROUND = "".join(map(chr, range(33)))


def is_data_url(text: str) -> bool:
    return text[:64].lstrip(_AROUND)[:5].lower() == "data:"


def unpack_data_url(url: str) -> bytes:
    """The bytes of a data URL: `data:[type][;parameter...][;base64],DATA`.

    The word `base64` may stand anywhere among the parameters, in any case. The data may be
    percent-encoded, use the url-safe alphabet, lack its padding, and contain line breaks. A
    fragment (`#...`) is not data. Raises ImageError, which never quotes the URL.
    """
    header, comma, data = url.strip(_AROUND).partition(",")
    if not comma:
        raise ImageError("the data URL has no comma; write data:image/png;base64,...")
    data = data.partition("#")[0]
    parameters = {word.strip().lower() for word in header.split(";")[1:]}
    if "base64" not in parameters:
        return unquote_to_bytes(data)
    try:
        plain = unquote_to_bytes(data) if "%" in data else data.encode("ascii")
        plain = plain.translate(_USUAL_ALPHABET, delete=_WHITESPACE).rstrip(b"=")
        return base64.b64decode(plain + b"=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ImageError("the data URL is not valid base64; encode the file again") from None
