"""Text to token ids and back, with Qwen's byte-level BPE.

An added token is a text with a separate id, such as `<|im_end|>` or `<think>`. Text from users must
never become one: otherwise a caption could end the turn and start a system turn. So plain text is
encoded as if there were no added tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from qwink.errors import CheckpointError

NEVER_SAMPLED = (
    "<|im_start|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)


_LONGEST_START = 64  # bytes; few tokens are longer, and they are rulers and spaces


class Tokenizer:
    """A checkpoint's tokenizer. Safe to share between threads."""

    def __init__(self, library: tokenizers.Tokenizer, eos_ids: tuple[int, ...] = ()) -> None:
        """Wraps `library` and changes its settings. Most callers want `Tokenizer.load`.

        `eos_ids` are the tokens that end an answer, by default `<|im_end|>`. Raises
        CheckpointError unless the tokenizer is byte-level BPE.
        """
        if not isinstance(library.decoder, tokenizers.decoders.ByteLevel):
            raise CheckpointError("the tokenizer is not byte-level BPE; use a Qwen3-VL checkpoint")
        added = library.get_added_tokens_decoder()
        self.added_tokens: dict[str, int] = {t.content: number for number, t in added.items()}
        self.special_tokens = frozenset(t.content for t in added.values() if t.special)
        self._special_ids = frozenset(number for number, t in added.items() if t.special)
        # The library can treat special tokens as plain text, but no other added tokens. So all
        # added tokens are declared special.
        library.add_special_tokens(
            [tokenizers.AddedToken(name, special=True) for name in self.added_tokens]
        )
        library.encode_special_tokens = True
        self._library = library
        longest_first = sorted(self.added_tokens, key=len, reverse=True)
        # (?!) never matches; it stands for a tokenizer without added tokens.
        self._added_re = re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})")
        self.eos_ids = eos_ids or (self.im_end,)

    @classmethod
    def load(cls, folder: str | Path) -> Tokenizer:
        """Reads tokenizer.json and, for the end tokens, generation_config.json.

        Without the latter, the end token comes from tokenizer_config.json, or is `<|im_end|>`.
        Raises CheckpointError, naming the file that is missing or damaged.
        """
        folder = Path(folder)
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise CheckpointError(f"{path} is missing; download the checkpoint's tokenizer files")
        try:
            library = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise CheckpointError(f"{path} is damaged ({error}); download it again") from None
        try:
            return cls(library, _eos_ids(folder, library))
        except CheckpointError as error:
            raise CheckpointError(f"{folder}: {error}") from None

    @property
    def vocab_size(self) -> int:
        """Number of tokens, added ones included. The model's head may be wider."""
        return self._library.get_vocab_size(with_added_tokens=True)

    def token_id(self, name: str) -> int:
        """The id of a token by its text. Raises CheckpointError if there is none."""
        return _token_id(self._library, name)

    @property
    def im_start(self) -> int:
        return self.token_id("<|im_start|>")

    @property
    def im_end(self) -> int:
        return self.token_id("<|im_end|>")

    @property
    def vision_start(self) -> int:
        return self.token_id("<|vision_start|>")

    @property
    def vision_end(self) -> int:
        return self.token_id("<|vision_end|>")

    @property
    def image_pad(self) -> int:
        return self.token_id("<|image_pad|>")

    @property
    def video_pad(self) -> int:
        """The token of frames; that of images where the tokenizer has no other."""
        return self.added_tokens.get("<|video_pad|>", self.image_pad)

    def forbidden_ids(self, num_logits: int | None = None) -> NDArray[np.int64]:
        """Ids that must never be sampled, ascending: picture tokens, `<|im_start|>`, unused ids.

        `num_logits` is the width of the model's head, padded beyond the vocabulary.
        """
        num_logits = self.vocab_size if num_logits is None else num_logits
        never = {self.added_tokens[name] for name in NEVER_SAMPLED if name in self.added_tokens}
        spelling = self._library.id_to_token
        ids = [i for i in range(num_logits) if i in never or spelling(i) is None]
        return np.array(ids, dtype=np.int64)

    def encode_text(self, text: str) -> list[int]:
        """Ids of plain text, without added tokens: `<|im_end|>` is ten characters."""
        return self._library.encode(text, add_special_tokens=False).ids

    def encode_verbatim(self, text: str) -> list[int]:
        """Ids whose bytes are exactly the text's. `encode_text` brings it to a normal form first.

        Characters of a text that the normal form changes are encoded one by one.
        """
        ids = self.encode_text(text)
        written = text.encode()
        if b"".join(map(self.token_bytes, ids)) == written:
            return ids
        if len(text) > 1:
            return [token for character in text for token in self.encode_verbatim(character)]
        return [self.token_id(_CHARACTERS[byte]) for byte in written]

    def starts_of(self, text: bytes) -> list[int]:
        """The plain tokens that a text may begin with, the shortest first."""
        spelling = "".join(_CHARACTERS[byte] for byte in text[:_LONGEST_START])
        found = (self._library.token_to_id(spelling[: end + 1]) for end in range(len(spelling)))
        added = self.added_tokens.values()
        return [token for token in found if token is not None and token not in added]

    def encode_template(self, text: str, restore: Mapping[int, str] | None = None) -> list[int]:
        """Ids of text in which added tokens are recognised.

        `restore` is a `str.translate` table for the text between the added tokens. It restores the
        characters that `ChatTemplate.encode` replaced.
        """
        ids: list[int] = []
        for index, piece in enumerate(self._added_re.split(text)):
            if index % 2:
                ids.append(self.added_tokens[piece])
            elif piece:
                ids += self.encode_text(piece.translate(restore) if restore else piece)
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, without special tokens. Bytes that are not UTF-8 become U+FFFD."""
        return b"".join(self.token_bytes(int(token)) for token in ids).decode(errors="replace")

    def token_bytes(self, token: int) -> bytes:
        """The bytes of a token; none for special tokens and unused ids."""
        spelling = self._library.id_to_token(token)
        if spelling is None or token in self._special_ids:
            return b""
        try:
            return bytes(_BYTES[character] for character in spelling)
        except KeyError:  # an added token with characters outside the byte alphabet
            return spelling.encode()

    def spellings(self, count: int) -> list[bytes]:
        """The bytes of the first `count` ids, an added token's being its name; unused: none."""
        names = {number: name.encode() for name, number in self.added_tokens.items()}
        spelling = self._library.id_to_token
        return [
            names[token]
            if token in names
            else (spelling(token) or "").translate(_AS_LATIN).encode("latin-1")
            for token in range(count)
        ]


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object; None if there is no file. Raises CheckpointError for anything else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}); download it again") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} does not hold a JSON object; download it again")
    return content


def _token_id(library: tokenizers.Tokenizer, name: str) -> int:
    token = library.token_to_id(name)
    if token is None:
        raise CheckpointError(f"the tokenizer has no {name}; use a Qwen3-VL checkpoint")
    return token


def _eos_ids(folder: Path, library: tokenizers.Tokenizer) -> tuple[int, ...]:
    declared = (read_json(folder / "generation_config.json") or {}).get("eos_token_id")
    if isinstance(declared, int):
        return (declared,)
    if isinstance(declared, list) and declared:
        return tuple(int(token) for token in declared)
    name = (read_json(folder / "tokenizer_config.json") or {}).get("eos_token")
    name = name.get("content") if isinstance(name, dict) else name
    return (_token_id(library, name),) if isinstance(name, str) else ()


def _byte_alphabet() -> dict[str, int]:
    """Character to byte: the inverse of GPT-2's `bytes_to_unicode`."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(256 + index): byte for index, byte in enumerate(others)}


_BYTES = _byte_alphabet()
_CHARACTERS = {byte: character for character, byte in _BYTES.items()}
_AS_LATIN = str.maketrans({character: chr(byte) for character, byte in _BYTES.items()})
