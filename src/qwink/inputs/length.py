"""A lower bound of the tokens of long texts, so that hopeless ones are refused early."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from qwink.inputs.tokenizer import Tokenizer

_LIKELY = 8  # characters a token, more than texts have; with fewer the text is no problem anyway
_SLICE = 16_384  # characters
# Between a letter and a space or a full stop of Chinese no token continues.
_CUT = re.compile(r"(?<=[^\W\d_])(?=[ \n，。])")


def least_tokens(
    texts: Sequence[str],
    tokenizer: Tokenizer,
    limit: int,
    check: Callable[[], None] = lambda: None,
) -> int:
    """At most as many tokens as the texts have; more than `limit` only if they have more.

    0 for texts so short that counting would save nothing. Long ones are tokenised slice by slice,
    until the limit is passed. `check` is called before each slice and may raise.
    """
    if sum(map(len, texts)) <= _LIKELY * limit:
        return 0
    count = 0
    for text in texts:
        start = 0
        while start < len(text):
            check()
            cut = _CUT.search(text, start + _SLICE, start + 2 * _SLICE)
            stop = cut.start() if cut else min(start + 2 * _SLICE, len(text))
            found = len(tokenizer.encode_template(text[start:stop]))
            # A cut within a word may add tokens, but fewer than as many again.
            count += found if cut or stop == len(text) else found // 2
            if count > limit:
                return count
            start = stop
    return count
