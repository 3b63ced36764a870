"""nano's accuracy on held-out pictures, answered by qwink: by recipe, by resize filter, and in
typefaces that it was not trained on, on lines and whole receipts.

    python -m benchmarks.nano [--count 800]

Needs torch and the fonts that `training/nano` names. For the filters, each picture is drawn
twice as large as nano takes it, so that qwink must resize it. Writes JSON to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import PIL.Image
import PIL.ImageDraw
import PIL.ImageFont

from qwink.export.recipe import RECIPES
from qwink.inputs.patches import RESAMPLES
from qwink.lab.record import RESULTS, record, write
from qwink.lab.statistics import summarise
from qwink.runtime.models import load
from training.nano import faces
from training.nano.evaluate import Question, distance, held_out, score, unseen_lines
from training.nano.questions import WORDS


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


def unseen(count: int) -> dict[str, Any]:
    """Short lines, whole receipts and a tall screenshot in typefaces that nano never saw."""
    lines = list(unseen_lines(count))
    with load("nano") as vlm:
        found = [vlm.ask(one.image, one.question, max_tokens=64).text for one in lines]
    result = {
        "lines": score(lines, found)["read"],
        "receipts": receipts(30),
        "screenshot": screenshot(),
    }
    print(result, flush=True)
    return result


def receipts(count: int) -> dict[str, Any]:
    """Whole receipts in unseen faces, read by `balanced`."""
    wrong = characters = 0
    milliseconds, lines = [], 0
    with load("nano") as vlm:
        vlm.ask(receipt(random.Random(-1))[0], "What does it say?")
        for number in range(count):
            image, text = receipt(random.Random(number))
            result = vlm.ask(image, "What does it say?")
            wrong += distance(result.text, text)
            characters += len(text)
            lines += text.count("\n") + 1
            milliseconds.append(result.timings.total_ms)
    return {
        "count": count,
        "lines": lines,
        "characters": round(1 - wrong / characters, 4),
        "total_ms": asdict(summarise(milliseconds)),
    }


def screenshot(num_lines: int = 257) -> dict[str, Any]:
    """A picture of 690×15,420 pixels: which share of its lines is right."""
    rng = random.Random(0)
    face = faces.typeface(faces.pick(rng, plain=True, unseen=True), 28)
    image = PIL.Image.new("RGB", (690, 60 * num_lines), "white")
    draw = PIL.ImageDraw.Draw(image)
    lines = [
        " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 4))) for _ in range(num_lines)
    ]
    for number, line in enumerate(lines):
        draw.text((30, 60 * number + 14), line, "black", face)
    with load("nano") as vlm:
        result = vlm.ask(image, "What does it say?")
    got, text = result.text.split("\n"), "\n".join(lines)
    return {
        "lines": num_lines,
        "right": round(sum(a == b for a, b in zip(got, lines, strict=False)) / num_lines, 4),
        "characters": round(1 - distance(result.text, text) / len(text), 4),
        "total_ms": round(result.timings.total_ms, 1),
    }


def receipt(rng: random.Random) -> tuple[PIL.Image.Image, str]:
    """A receipt of 8 to 16 lines, and its text: items with prices on the right, a total."""
    face = faces.pick(rng, plain=rng.random() < 0.5, unseen=True)
    size = rng.choice((18, 20, 24, 28))
    font, large = faces.typeface(face, size), faces.typeface(face, round(1.3 * size))
    image = PIL.Image.new("RGB", (22 * size, 40 * size), rng.choice(("white", "#f6f2e6")))
    draw, y = PIL.ImageDraw.Draw(image), size
    pen, right, text = (30, 30, 34), 21 * size, []

    def write(left: str, price: str, font: PIL.ImageFont.FreeTypeFont) -> None:
        nonlocal y
        draw.text((size, y), left, pen, font)
        if price:
            draw.text((right, y), price, pen, font, "ra")
        text.append(f"{left} {price}".strip())
        y += round(1.6 * size)

    write(f"{rng.choice(WORDS).capitalize()} {rng.choice(WORDS).capitalize()}", "", large)
    write(f"{rng.choice(WORDS).capitalize()} {rng.randint(1, 99)}", "", font)
    for _ in range(rng.randint(5, 12)):
        words = [rng.choice(WORDS) for _ in range(rng.randint(1, 2))]
        write(" ".join(words).capitalize(), f"{rng.randint(0, 99)}.{rng.randint(0, 99):02}", font)
    draw.line([(size, y), (right, y)], pen, 2)
    y += size // 2
    write("Total", f"{rng.randint(10, 999)}.{rng.randint(0, 99):02}", large)
    return image.crop((0, 0, image.width, y + size)), "\n".join(text)


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
    write(
        args.out.with_name("nano-unseen.json"),
        record("nano", unseen(args.count // 4)).document(),
    )


if __name__ == "__main__":
    main()
