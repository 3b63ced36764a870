"""A page of text read in strips and as a whole, in turns.

    python -m qwink.lab.strips ARTIFACT [--strips 8] [--words 300] [--rounds 2] [--home peers]

The page has about 1000 visual tokens. Its text is known: the engine computes in full, then the
known token takes the place of the chosen one, so that the times are those of a model that reads
without mistakes; see `qwink.lab.extract.replay`. Drafts are off. Each round has another page.
With `--home`, the peers that `benchmarks.peers.install` put there get the same pages and generate
as many tokens, after qwink has ended.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import PIL.Image
import PIL.ImageDraw

from qwink.engine.threads import physical_cores
from qwink.inputs.budget import TOKEN_PIXELS
from qwink.inputs.strips import MOST_STRIPS, cut_into_strips
from qwink.lab.extract.replay import replay
from qwink.lab.peers.cap import CPUS, cap
from qwink.lab.peers.contenders import SETTINGS, Contender, contender, installed
from qwink.lab.peers.worker import PeerFailed, Worker
from qwink.lab.pictures.sample import as_jpeg
from qwink.lab.pictures.sketch import INK, TEXT, font
from qwink.lab.record import RESULTS, record, write
from qwink.lab.statistics import Summary, paired_ratio, summarise
from qwink.runtime.listening import listen
from qwink.runtime.memory import Memory
from qwink.runtime.messages import last_result, user_message
from qwink.runtime.models import load
from qwink.runtime.request import Request
from qwink.runtime.vlm import VLM
from qwink.runtime.waiting import Limits
from qwink.types import Result

SIZE = (896, 1152)  # pixels: 1008 visual tokens
FONT_SIZE, PITCH, MARGIN = 20, 29, 48  # pixels
QUESTION = "Read all the text."
PEERS = ("openvino-int4", "llama.cpp-Q4_0-pure")  # the best of each, in one process


@dataclass(frozen=True, slots=True)
class Ways:
    """Times of one way to read, ms."""

    first_token_ms: Summary
    total_ms: Summary
    encode_ms: Summary
    prefill_ms: Summary
    generate_ms: Summary
    num_steps: Summary
    completion_tokens: int
    image_tokens: int
    prompt_tokens: int


def draw(seed: int, num_words: int) -> tuple[np.ndarray[Any, Any], list[str]]:
    """A page [H, W, 3] and its lines."""
    rng, words = random.Random(seed), TEXT.split()
    image = PIL.Image.new("RGB", SIZE, "white")
    pen, face = PIL.ImageDraw.Draw(image), font(FONT_SIZE)
    lines, line, y = [], "", MARGIN
    for number in range(num_words + 1):
        word = rng.choice(words) if number < num_words else ""
        longer = f"{line} {word}".strip()
        if not word or face.getlength(longer) > SIZE[0] - 2 * MARGIN:
            pen.text((MARGIN, y), line, INK, face)
            lines.append(line)
            y += PITCH
            line = word
        else:
            line = longer
    return np.asarray(image), lines


def strip_texts(page: np.ndarray[Any, Any], lines: Sequence[str], count: int) -> list[str]:
    """What the strips of a drawn page say."""
    cut = cut_into_strips(page, 1.0, count)
    texts = []
    for strip in cut.strips:
        _, top, _, bottom = strip.box
        inside = [
            line
            for number, line in enumerate(lines)
            if top <= MARGIN + number * PITCH + FONT_SIZE / 2 <= bottom
        ]
        texts.append("\n".join(inside))
    return texts


def read(vlm: VLM, page: np.ndarray[Any, Any], lines: Sequence[str], strips: int | None) -> Result:
    """The page's known text, by one way. Raises SystemExit if it was not replayed."""
    area = SIZE[0] * SIZE[1]
    options, sampling = vlm.split_options(
        {
            "task": "ocr",
            "min_pixels": TOKEN_PIXELS,
            "max_pixels": area,
            "max_tokens": 2000,
            "strips": strips or "off",
        }
    )
    request = vlm.prepare([user_message(page, QUESTION, "ocr")], options, sampling)
    texts = strip_texts(page, lines, strips) if strips else ["\n".join(lines)]
    own: list[Request] = [strip.request for strip in request.strips] or [request]
    for one, text in zip(own, texts, strict=True):
        replay(one, vlm.tokenizer, vlm.tokenizer.encode_text(text))
    result = last_result(listen(vlm.scheduler, request))
    if result.text != "\n".join(lines):
        raise SystemExit(f"not replayed: {result.text[:200]!r}")
    return result


def summary(results: Sequence[Result]) -> Ways:
    def of(name: str) -> Summary:
        return summarise([getattr(result.timings, name) for result in results])

    usage = results[0].usage
    return Ways(
        of("first_token_ms"),
        of("total_ms"),
        of("encode_ms"),
        of("prefill_ms"),
        of("generate_ms"),
        of("num_steps"),
        usage.completion_tokens,
        usage.image_tokens,
        usage.prompt_tokens,
    )


def by_peers(home: Path, cpu: str | None, plan: argparse.Namespace, tokens: int) -> dict[str, Any]:
    """Peer → times of the same pages and as many tokens, ms, or why there are none."""
    found: dict[str, Any] = {}
    with TemporaryDirectory(prefix="qwink-cap-") as folder:
        made = cap(cpu, Path(folder)) if cpu else None
        for setting in (one for one in SETTINGS if one.name in PEERS):
            python, reason = installed(setting.peer, home, made)
            if python is None:
                found[setting.name] = {"absent": reason}
                continue
            try:
                found[setting.name] = _by_peer(
                    contender(setting, home, python, cap=made), plan, tokens
                )
            except PeerFailed as error:
                found[setting.name] = {"absent": str(error)}
    return found


def _by_peer(one: Contender, plan: argparse.Namespace, tokens: int) -> dict[str, Any]:
    firsts, totals = [], []
    with Worker(one, plan.threads) as worker:
        for number in range(plan.rounds):
            page, _ = draw(number, plan.words)
            figures = worker.ask(as_jpeg(PIL.Image.fromarray(page)), QUESTION, tokens)
            firsts.append(figures["first_token_ms"])
            totals.append(firsts[-1] + (tokens - 1) * figures["decode_ms_per_token"])
            print(one.name, firsts[-1], totals[-1], file=sys.stderr, flush=True)
    return {
        "first_token_ms": asdict(summarise(firsts)),
        "total_ms": asdict(summarise(totals)),
        "image_tokens": figures["num_visual_tokens"],
        "prompt_tokens": figures["num_prompt_tokens"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("artifact")
    parser.add_argument("--strips", type=int, default=MOST_STRIPS)
    parser.add_argument("--words", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("--home", type=Path, help="where peers are installed")
    parser.add_argument(
        "--cpu", choices=CPUS, help="the kind of processor that peers are built for"
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "strips.json")
    args = parser.parse_args()
    found: dict[str, list[Result]] = {"whole": [], "strips": []}
    limits = Limits(max_running=MOST_STRIPS + 1, keep_prompts=False)
    memory = Memory.default().without_images()
    with load(
        args.artifact, threads=args.threads, limits=limits, memory=memory, speculate="off"
    ) as vlm:
        vlm.ask(np.zeros((224, 224, 3), np.uint8), "Warm up.", max_tokens=2)
        for number in range(args.rounds):
            page, lines = draw(number, args.words)
            for way, strips in (("whole", None), ("strips", args.strips)):
                result = read(vlm, page, lines, strips)
                print(way, result.timings, file=sys.stderr, flush=True)
                found[way].append(result)
    totals = {way: [one.timings.total_ms for one in each] for way, each in found.items()}
    measured = {
        "words": args.words,
        "strips": args.strips,
        "threads": args.threads,
        "whole": asdict(summary(found["whole"])),
        "in_strips": asdict(summary(found["strips"])),
        "times_sooner": asdict(paired_ratio(totals["whole"], totals["strips"])),
    }
    if args.home is not None:
        tokens = found["whole"][0].usage.completion_tokens
        measured["peers"] = by_peers(args.home, args.cpu, args, tokens)
    write(args.out, record("strips", measured).document())
    print(json.dumps(measured["times_sooner"]))


if __name__ == "__main__":
    main()
