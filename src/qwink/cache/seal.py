"""Names and contents of entries in a store that others may read.

A name is a hash of what it stands for. Without a secret, it is SHA-256, so whoever reads the store
can test whether it has the entry of a picture that they know. With a secret, the name is an HMAC
and the content is encrypted (AES-256-GCM, with the name as associated data). The store then reveals
only the number of entries, their sizes and when they are used, and it cannot alter one unnoticed.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Sequence
from importlib.util import find_spec

from qwink.cache.entry import Unusable
from qwink.errors import OptionError
from qwink.extras import install_command

_VERSION = 1  # of names and contents
_NONCE_BYTES = 12
_TAG_BYTES = 16


class Seal:
    """Names, encrypts and decrypts entries. Equal secrets make equal names."""

    def __init__(self, *secrets: bytes) -> None:
        """Without a secret that is not empty, nothing is encrypted.

        Raises OptionError if the package for encryption is not installed.
        """
        self._secret = b""
        if any(secrets):
            if find_spec("cryptography") is None:
                raise OptionError(
                    "encrypted entries need the package cryptography; install it with: "
                    + install_command("redis")
                )
            # Each part has a fixed length, so that no two lists of secrets give the same key.
            self._secret = b"".join(hashlib.sha256(secret).digest() for secret in secrets)

    @property
    def overhead(self) -> int:
        """Bytes by which a sealed content is longer."""
        return _NONCE_BYTES + _TAG_BYTES if self._secret else 0

    def name(self, kind: str, text: str) -> str:
        """The name of the entry of `kind` for what `text` describes."""
        content = text.encode("utf-8", "surrogatepass")
        if self._secret:
            digest = hmac.digest(self._key("names"), content, "sha256").hex()
        else:
            digest = hashlib.sha256(content).hexdigest()
        return f"qwink:{_VERSION}:{kind}:{digest}"

    def seal(self, name: str, parts: Sequence[bytes]) -> bytes:
        """The content to store, of `parts` in a row."""
        content = b"".join(parts)
        if not self._secret:
            return content
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = os.urandom(_NONCE_BYTES)
        return nonce + AESGCM(self._key("contents")).encrypt(nonce, content, name.encode())

    def unseal(self, name: str, data: bytes) -> bytes:
        """What `seal` was given. Raises Unusable if it is damaged or not sealed by this secret.

        Without a secret, the content is not checked.
        """
        if not self._secret:
            return data
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            cipher = AESGCM(self._key("contents"))
            return cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], name.encode())
        except (InvalidTag, ValueError):
            raise Unusable from None

    def _key(self, purpose: str) -> bytes:
        return hmac.digest(self._secret, purpose.encode(), "sha256")
