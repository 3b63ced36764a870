"""A film: the first token, the whole answer, and a second question about it.

    python -m qwink.lab.film ARTIFACT [--seconds 60] [--tokens 64] [--rounds 2]

Draws films in which each frame differs, writes them with PyAV, and asks about each twice. Drafts
are off, since random weights answer in loops. The second question finds the encoded pairs of frames
in memory.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import av
import numpy as np

from qwink.engine.threads import physical_cores
from qwink.lab.pictures.sample import clouds
from qwink.lab.record import RESULTS, record, write
from qwink.lab.statistics import Summary, summarise
from qwink.runtime.models import load
from qwink.types import Result

RATE = 10  # frames a second
SIZE = (640, 360)  # pixels
QUESTIONS = ("What happens in this film?", "What is shown at the end?")


@dataclass(frozen=True, slots=True)
class Asked:
    """One question about several films, ms."""

    first_token_ms: Summary
    total_ms: Summary
    decode_ms: Summary
    encode_ms: Summary
    prefill_ms: Summary
    generate_ms: Summary


def draw(path: Path, seed: int, seconds: int) -> None:
    """A film that moves over a picture of smooth colours."""
    width, height = SIZE
    ground = np.asarray(clouds(seed, 2 * width))
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=RATE)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for number in range(seconds * RATE):
            x, y = number % width, number * 3 % (2 * width - height)
            pixels = np.ascontiguousarray(ground[y : y + height, x : x + width])
            for packet in stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)


def summary(results: list[Result]) -> Asked:
    def of(name: str) -> Summary:
        return summarise([getattr(result.timings, name) for result in results])

    return Asked(*(of(name) for name in Asked.__slots__))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("artifact")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("--out", type=Path, default=RESULTS / "film.json")
    args = parser.parse_args()
    answers: tuple[list[Result], list[Result]] = ([], [])
    with (
        tempfile.TemporaryDirectory(prefix="qwink-film-") as folder,
        load(args.artifact, threads=args.threads, speculate="off") as vlm,
    ):
        path = Path(folder, "film.mp4")
        vlm.ask(np.zeros((224, 224, 3), np.uint8), "Warm up.", max_tokens=2)
        for number in range(args.rounds):
            draw(path, number, args.seconds)
            for question, kept in zip(QUESTIONS, answers, strict=True):
                result = vlm.ask(path, question, max_tokens=args.tokens, temperature=0.0)
                print(question, result.usage, result.timings, file=sys.stderr, flush=True)
                kept.append(result)
    first = answers[0][0].usage
    measured = {
        "seconds": args.seconds,
        "frame": list(SIZE),
        "threads": args.threads,
        "prompt_tokens": first.prompt_tokens,
        "image_tokens": first.image_tokens,
        "completion_tokens": first.completion_tokens,
        "first_question": asdict(summary(answers[0])),
        "second_question": asdict(summary(answers[1])),
    }
    write(args.out, record("film", measured).document())
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
