"""How long a pattern gets when its repetitions are written out: `(a{100}){100}` has 10,000."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\{(\d*)(?:,(\d*))?\}|[()]|.", re.DOTALL)
_MOST = 10**9


def expanded_length(pattern: str) -> int:
    """Characters and classes of a pattern, each counted as often as it must or may be repeated.

    `*` and `+` count once. A rough measure, also for the grammars that contain patterns.
    """
    totals = [0]  # of the open groups
    last = 0  # of what a repetition would repeat
    for found in _TOKEN.finditer(pattern):
        text = found[0]
        if text == "(":
            totals.append(0)
            last = 0
        elif text == ")" and len(totals) > 1:
            last = totals.pop()
            totals[-1] += last
        elif found[1] is not None and (found[1] or found[2]):
            times = max(int(found[1][:9] or 0), int((found[2] or "0")[:9]), 1)
            totals[-1] += last * (times - 1)
            last *= times
        else:
            last = 1
            totals[-1] += 1
        totals[-1], last = min(totals[-1], _MOST), min(last, _MOST)
    return sum(totals)
