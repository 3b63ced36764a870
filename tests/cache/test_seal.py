"""Names tell nothing without the secret, and contents cannot be read or altered."""

from __future__ import annotations

import hashlib

import pytest

from qwink.cache import seal as module
from qwink.cache.entry import Unusable
from qwink.cache.seal import Seal
from qwink.errors import OptionError

CONTENT = [b"some ", b"activations"]


def test_without_a_secret_a_name_is_a_hash_and_the_content_is_plain() -> None:
    seal = Seal(b"")
    name = seal.name("image", "a")
    assert name == f"qwink:1:image:{hashlib.sha256(b'a').hexdigest()}"
    assert seal.seal(name, CONTENT) == b"some activations"
    assert seal.unseal(name, b"some activations") == b"some activations"
    assert seal.overhead == 0


def test_with_a_secret_names_cannot_be_guessed_and_contents_are_encrypted() -> None:
    seal = Seal(b"secret")
    name = seal.name("image", "a")
    assert hashlib.sha256(b"a").hexdigest() not in name
    data = seal.seal(name, CONTENT)
    assert b"activations" not in data
    assert len(data) == len(b"some activations") + seal.overhead
    assert Seal(b"secret").unseal(name, data) == b"some activations"
    assert Seal(b"secret").name("image", "a") == name
    assert seal.seal(name, CONTENT) != data  # each time with a new nonce


def test_secrets_kinds_and_texts_make_different_names() -> None:
    seals = [Seal(b""), Seal(b"a"), Seal(b"b"), Seal(b"a", b"b"), Seal(b"ab"), Seal(b"a", b"")]
    names = [
        seal.name(kind, text) for seal in seals for kind in ("image", "upload") for text in "ab"
    ]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("change", ["byte", "end", "name", "secret", "plain", "empty"])
def test_what_was_altered_is_unusable(change: str) -> None:
    seal, name = Seal(b"secret"), "qwink:1:image:a"
    data = bytearray(seal.seal(name, CONTENT))
    if change == "byte":
        data[20] ^= 1
    elif change == "end":
        del data[-1]
    elif change == "name":  # an entry under another's name
        name = "qwink:1:image:b"
    elif change == "secret":
        seal = Seal(b"other")
    elif change == "plain":
        data = bytearray(b"some activations" * 4)
    else:
        data.clear()
    with pytest.raises(Unusable):
        seal.unseal(name, bytes(data))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    Seal(b"")
    with pytest.raises(OptionError, match=r"cryptography; install it with: .*\[redis\]"):
        Seal(b"secret")
