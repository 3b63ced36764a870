"""`qwink batch` beside a shell loop of `qwink ask`, on pictures drawn for it.

    python -m qwink.lab.batches [--pictures 500] [--loop 20] [--model nano] [--tokens 16]

The loop starts a process for each picture, as in `for f in *.jpg; do qwink ask $f ...; done`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from qwink.lab.pictures.sample import as_jpeg, clouds
from qwink.lab.record import RESULTS, record, write

SIDE = 448  # pixels
QUESTION = "What is shown?"


@dataclass(frozen=True, slots=True)
class Measured:
    """Times in seconds, of processes from start to end."""

    model: str
    pictures: int
    max_tokens: int
    batch_s: float
    batch_rate: float  # pictures per second, the start of the process included
    loop_pictures: int
    loop_s: float
    loop_rate: float
    ratio: float  # batch_rate over loop_rate
    stage_ms: dict[str, float]  # medians over the rows of the batch
    summary: str  # what the command said on stderr


def measure(model: str, pictures: int, loop: int, max_tokens: int) -> Measured:
    """Run both, the batch first. Raises CalledProcessError."""
    asked = ["-q", QUESTION, "--max-tokens", str(max_tokens), "--model", model]
    program = [sys.executable, "-m", "qwink"]
    with tempfile.TemporaryDirectory() as name:
        folder, out = Path(name, "pictures"), Path(name, "out.jsonl")
        folder.mkdir()
        for number in range(pictures):
            (folder / f"{number:05}.jpg").write_bytes(as_jpeg(clouds(number, SIDE)))
        subprocess.run([*program, "models"], check=True, capture_output=True)  # warm files
        ask = [*program, "ask", *asked]
        subprocess.run([*ask, str(folder / "00000.jpg")], check=True, capture_output=True)
        begin = time.perf_counter()
        command = [*program, "batch", str(folder), *asked, "--out", str(out)]
        ran = subprocess.run(command, check=True, capture_output=True, text=True)
        batch_s = time.perf_counter() - begin
        rows = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
        begin = time.perf_counter()
        for number in range(loop):
            path = folder / f"{number:05}.jpg"
            subprocess.run([*ask, str(path)], check=True, capture_output=True)
        loop_s = time.perf_counter() - begin
    stages = {name: median([row["timings"][name] for row in rows]) for name in rows[0]["timings"]}
    return Measured(
        model,
        pictures,
        max_tokens,
        round(batch_s, 2),
        round(len(rows) / batch_s, 2),
        loop,
        round(loop_s, 2),
        round(loop / loop_s, 3),
        round(len(rows) / batch_s / (loop / loop_s), 1),
        {name: round(value, 2) for name, value in stages.items()},
        "\n".join(ran.stderr.splitlines()[-2:]),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="nano")
    parser.add_argument("--pictures", type=int, default=500)
    parser.add_argument("--loop", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--out", type=Path, default=RESULTS / "batch-nano.json")
    given = parser.parse_args()
    measured = measure(given.model, given.pictures, given.loop, given.tokens)
    write(given.out, record("batch", measured).document())
    print(json.dumps(asdict(measured), indent=2))


if __name__ == "__main__":
    main()
