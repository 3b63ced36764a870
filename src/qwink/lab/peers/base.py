"""The interface of an engine under comparison, and its process's loop over stdin and stdout.

Each peer runs in a separate environment, so this module and the adapters import only the standard
library and the peer. A process is started with the peer's options as JSON. It reads a question as
a line of JSON from stdin and writes the answer as a line of JSON to stdout.
"""

from __future__ import annotations

import base64
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, TextIO


@dataclass(frozen=True)
class PeerAnswer:
    """Times of the first and last token, by `time.perf_counter`, and numbers of tokens.

    The prompt's tokens include those of the picture. `stages_ms` is empty where a peer does not
    report stages.
    """

    first_at: float
    last_at: float
    num_tokens: int
    num_prompt_tokens: int
    num_visual_tokens: int | None = None  # None: the peer does not report it
    stages_ms: dict[str, float] = field(default_factory=dict)


class Peer(Protocol):
    """A loaded model. Answers are greedy and `num_tokens` long; no cache outlives a question."""

    def versions(self) -> dict[str, str]:
        """Package → version, of the engine's packages."""
        ...

    def answer(self, picture: bytes, question: str, num_tokens: int) -> PeerAnswer:
        """`picture` is a JPEG in memory; the time of this call is measured."""
        ...


class Crowd(Protocol):
    """A loaded model that answers about many pictures at once."""

    def versions(self) -> dict[str, str]:
        """As for `Peer`."""
        ...

    def answer_all(self, pictures: list[bytes], question: str, num_tokens: int) -> list[int]:
        """The number of tokens of each answer, greedy; the time of this call is measured."""
        ...


def serve(load: Callable[..., Peer | Crowd]) -> None:
    """Load the peer with the options in the first argument and answer until stdin ends."""
    replies = _own_stdout()
    try:
        peer = load(**json.loads(sys.argv[1]))
        _send(replies, {"versions": peer.versions()})
        for line in sys.stdin:
            _send(replies, _reply(peer, json.loads(line)))
    except Exception as error:
        _send(replies, {"error": f"{type(error).__name__}: {error}"})
        raise


def _reply(peer: Any, request: dict[str, Any]) -> dict[str, Any]:
    if "pictures" in request:
        return _reply_to_all(peer, request)
    picture, wanted = base64.b64decode(request["picture"]), request["num_tokens"]
    faults, started = _major_faults(), time.perf_counter()
    answer: PeerAnswer = peer.answer(picture, request["question"], wanted)
    _check_length(answer.num_tokens, wanted)
    reply: dict[str, Any] = {"first_token_ms": (answer.first_at - started) * 1e3}
    if wanted > 1:
        took = answer.last_at - answer.first_at
        reply["decode_ms_per_token"] = took * 1e3 / (wanted - 1)
    reply |= {f"{name}_ms": spent for name, spent in answer.stages_ms.items()}
    counts = asdict(answer)
    reply |= {name: counts[name] for name in ("num_prompt_tokens", "num_visual_tokens")}
    return reply | {
        "peak_rss_bytes": _peak_rss_bytes(),
        "num_major_faults": _major_faults() - faults,
    }


def _reply_to_all(peer: Crowd, request: dict[str, Any]) -> dict[str, Any]:
    pictures = [base64.b64decode(picture) for picture in request["pictures"]]
    faults, started = _major_faults(), time.perf_counter()
    lengths = peer.answer_all(pictures, request["question"], request["num_tokens"])
    spent_ms = (time.perf_counter() - started) * 1e3
    for length in lengths:
        _check_length(length, request["num_tokens"])
    return {
        "all_ms": spent_ms,
        "images_per_hour": len(lengths) * 3.6e6 / spent_ms,
        "peak_rss_bytes": _peak_rss_bytes(),
        "num_major_faults": _major_faults() - faults,
    }


def _check_length(found: int, wanted: int) -> None:
    if found != wanted:
        raise ValueError(
            f"the answer has {found} tokens instead of {wanted}; ask for fewer, or a question "
            "whose answer is longer"
        )


def _own_stdout() -> TextIO:
    """A copy of stdout. File descriptor 1 is redirected to stderr, for native code prints there."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return replies


def _send(replies: TextIO, message: dict[str, Any]) -> None:
    replies.write(json.dumps(message) + "\n")
    replies.flush()


def _major_faults() -> int:
    """Pages read from disk; many of them mean that memory is too small for this measurement."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def _peak_rss_bytes() -> int:
    """Largest resident set, mapped files included."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
