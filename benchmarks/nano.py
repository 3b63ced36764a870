"""nano's accuracy on held-out pictures, answered by qwink: by recipe, and by resize filter.

    python -m benchmarks.nano [--count 800]

Needs torch and the fonts that `training/nano` draws with. For the filters, each picture is drawn
twice as large as nano takes it, so that qwink must resize it. Writes JSON to benchmarks/results/.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import PIL.Image

from qwink.export.recipe import RECIPES
from qwink.inputs.patches import RESAMPLES
from qwink.lab.record import RESULTS, record, write
from qwink.runtime.models import load
from training.nano.evaluate import Question, held_out, score


def enlarged(question: Question) -> Question:
    """The same question about the picture at twice its size."""
    width, height = question.image.size
    lanczos = PIL.Image.Resampling.LANCZOS
    return question._replace(image=question.image.resize((2 * width, 2 * height), lanczos))


def evaluate(recipe: str, asked: Sequence[Question], **options: Any) -> dict[str, Any]:
    """Scores per task, of greedy answers; eight questions run at once."""
    with load("nano", recipe=recipe) as vlm, ThreadPoolExecutor(8) as pool:

        def answer(question: Question) -> str:
            return vlm.ask(question.image, question.question, max_tokens=64, **options).text

        return dict(score(asked, list(pool.map(answer, asked))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=800)
    parser.add_argument("--out", type=Path, default=RESULTS / "nano.json")
    args = parser.parse_args()
    asked = list(held_out(args.count))
    result: dict[str, Any] = {"count": args.count, "recipes": {}, "filters": {}}
    for recipe in RECIPES:
        result["recipes"][recipe] = evaluate(recipe, asked)
        print(recipe, result["recipes"][recipe]["read"], flush=True)
    large = [enlarged(question) for question in asked[: args.count // 2]]
    for resample in RESAMPLES:
        result["filters"][resample] = evaluate("balanced", large, resample=resample)
        print(resample, result["filters"][resample]["read"], flush=True)
    write(args.out, record("nano", result).document())


if __name__ == "__main__":
    main()
