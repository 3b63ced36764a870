"""Turn ids into text while they are generated.

Each token of byte-level BPE is a fixed string of bytes, so an incremental UTF-8 decoder gives the
text at a constant cost per token. (vLLM and TGI decode a sliding window of tokens at each step.)
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from qwink.errors import OptionError
from qwink.inputs.tokenizer import Tokenizer


class Detokenizer:
    """Decodes one growing sequence. All pieces together equal `tokenizer.decode(ids)`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def add(self, token_id: int) -> str:
        """New text; empty while a character's bytes are incomplete."""
        return self._decoder.decode(self._tokenizer.token_bytes(token_id))

    def finish(self) -> str:
        """U+FFFD if the sequence ended within a character, else nothing."""
        return self._decoder.decode(b"", final=True)


class StopStrings:
    """Ends text before the first stop string.

    Holds back text that may be the start of a stop string. When several stop strings occur, the
    one that is complete first ends the text; of several that are complete at the same place, the
    longest. So the result does not depend on how the text is cut into pieces.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """Raises OptionError for an empty stop string, which would stop before any text."""
        if not all(stops):
            raise OptionError("a stop string is empty; leave it out")
        self._stops = tuple(stops)
        self._held = ""
        self.stopped = False

    def add(self, text: str) -> str:
        """New text that no later text can make part of a stop string; nothing once `stopped`."""
        if self.stopped:
            return ""
        text = self._held + text
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)[1]]
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """The text that is still held back, at the end of the sequence."""
        text, self._held = self._held, ""
        return text


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a start of `stop`."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
