"""Do sets of kernels give the same greedy answers? Counts those that are equal.

    python -m qwink.lab.agreement MODEL [--library FILE] [--kernels NAME ...] [--tokens 24]

Each set answers questions about twelve drawn pictures, and is compared with the first. The sets are
those that this processor runs. `--library` takes another compiled library: that of
`tests/native/emulation` runs all sets of x86-64 on a processor with AVX2, slowly. Writes JSON to
benchmarks/results/.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qwink import native
from qwink.lab.record import RESULTS, record, write
from qwink.lab.verify.samples import Sample, built_in_samples
from qwink.runtime.models import load

QUESTION = "What is shown in this picture?"


@dataclass(frozen=True, slots=True)
class Agreement:
    """`num_equal` of `num_answers` of a set of kernels equal those of the reference.

    `mean_prefix` is the mean share of an answer's characters before the first difference.
    """

    kernels: str
    num_answers: int
    num_equal: int
    mean_prefix: float


def answers(
    model: str, kernels: str, samples: Sequence[Sample], num_tokens: int, recipe: str | None = None
) -> list[str]:
    """Greedy answers with one set of kernels. Raises ValueError if it does not run here."""
    native.choose_kernels(kernels)
    try:
        with load(model, recipe=recipe) as vlm:
            return [
                vlm.ask(
                    sample.image,
                    sample.question or QUESTION,
                    max_tokens=num_tokens,
                    temperature=0,
                ).text
                for sample in samples
            ]
    finally:
        native.choose_kernels(None)


def compare(kernels: str, found: Sequence[str], reference: Sequence[str]) -> Agreement:
    """Answers to the same questions."""
    pairs = list(zip(found, reference, strict=True))
    equal = sum(a == b for a, b in pairs)
    return Agreement(kernels, len(pairs), equal, sum(_prefix(a, b) for a, b in pairs) / len(pairs))


def _prefix(found: str, reference: str) -> float:
    longest = max(len(found), len(reference))
    pairs = enumerate(zip(found, reference, strict=False))
    same = next((index for index, (a, b) in pairs if a != b), min(len(found), len(reference)))
    return same / longest if longest else 1.0


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", help="a checkpoint, an artifact or nano")
    parser.add_argument("--recipe")
    parser.add_argument("--library", type=Path, help="compiled kernels to use instead")
    parser.add_argument("--kernels", action="append", help="the first is the reference")
    parser.add_argument("--pictures", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--out", type=Path, default=RESULTS / "agreement.json")
    args = parser.parse_args(arguments)
    if args.library:
        native.LIBRARY = args.library.resolve()
    names: Sequence[str] = args.kernels or native.capabilities().supported
    if not names:
        parser.error(native.capabilities().advice)
    samples = built_in_samples()[: args.pictures]
    found = []
    for name in names:
        try:
            texts = answers(args.model, name, samples, args.tokens, args.recipe)
        except ValueError as error:
            parser.error(str(error))
        found.append(texts)
        print(name, compare(name, texts, found[0]), flush=True)
    agreements = [compare(name, texts, found[0]) for name, texts in zip(names, found, strict=True)]
    measured = {
        "model": Path(args.model).name,
        "recipe": args.recipe,
        "num_tokens": args.tokens,
        "reference": names[0],
        "emulated": bool(args.library),
        "kernels": {
            one.kernels: {
                "num_answers": one.num_answers,
                "num_equal": one.num_equal,
                "mean_prefix": round(one.mean_prefix, 4),
            }
            for one in agreements
        },
    }
    write(args.out, record("agreement", measured).document())
    print(json.dumps(measured["kernels"]))


if __name__ == "__main__":
    main()
