"""`qwink batch --ray` beside `qwink batch`, and while actors and the command itself are killed.

python -m qwink.lab.actors [--pictures 2000] [--compared 400]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from qwink.lab.pictures.sample import as_jpeg, clouds
from qwink.lab.record import RESULTS, record, write

SIDE = 128  # pixels
QUESTION = "Describe this picture."
ACTORS = 2


@dataclass(frozen=True, slots=True)
class Measured:
    """Times in seconds, of processes from start to end."""

    model: str
    actors: int
    compared_pictures: int
    local_s: float
    ray_s: float
    ray_start_s: float  # until its first row
    overhead_per_picture_ms: float  # after the start, beside one process
    pictures: int
    killed_actors: int
    killed_commands: int
    killed_s: float
    rows: int
    ids_without_a_row: int
    ids_with_several: int
    errors: int


def measure(model: str, pictures: int, compared: int) -> Measured:
    """Raises CalledProcessError if a command fails."""
    with tempfile.TemporaryDirectory() as name:
        few, many = Path(name, "few"), Path(name, "many")
        for folder, count in ((few, compared), (many, pictures)):
            folder.mkdir()
            for number in range(count):
                (folder / f"{number:05}.jpg").write_bytes(as_jpeg(clouds(number, SIDE)))
        local, ray, killed = (Path(name, f"{each}.jsonl") for each in ("local", "ray", "killed"))
        asked = ["-q", QUESTION, "--max-tokens", "16", "--model", model]
        on_ray = [*asked, "--ray", "local", "--ray-actors", str(ACTORS)]
        local_s, local_start = _timed([str(few), *asked, "--out", str(local)], local)
        ray_s, ray_start = _timed([str(few), *on_ray, "--out", str(ray)], ray)
        begin = time.perf_counter()
        actors, commands = _killed([str(many), *on_ray, "--out", str(killed)], killed, pictures)
        killed_s = time.perf_counter() - begin
        rows = [json.loads(line) for line in killed.read_text("utf-8").splitlines()]
    counts = Counter(row["id"] for row in rows)
    extra = (ray_s - ray_start) - (local_s - local_start)
    return Measured(
        model,
        ACTORS,
        compared,
        round(local_s, 2),
        round(ray_s, 2),
        round(ray_start, 2),
        round(extra / compared * 1e3, 2),
        pictures,
        actors,
        commands,
        round(killed_s, 2),
        len(rows),
        pictures - len(counts),
        sum(count > 1 for count in counts.values()),
        sum(row["error"] is not None for row in rows),
    )


def _command(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    program = [sys.executable, "-m", "qwink", "batch", *arguments]
    return subprocess.Popen(program, stderr=subprocess.DEVNULL)


def _timed(arguments: Sequence[str], out: Path) -> tuple[float, float]:
    """Seconds of a command, and until its first row."""
    begin = time.perf_counter()
    process = _command(arguments)
    _wait(process, out, 1)
    first = time.perf_counter() - begin
    if process.wait():
        raise subprocess.CalledProcessError(process.returncode, process.args)
    return time.perf_counter() - begin, first


def _killed(arguments: Sequence[str], out: Path, pictures: int) -> tuple[int, int]:
    """Kill an actor three times and the command once, then let it end. What was killed."""
    process = _command(arguments)
    for share in (0.1, 0.3):
        _wait(process, out, round(share * pictures))
        os.kill(_actors()[0], signal.SIGKILL)
    _wait(process, out, round(0.5 * pictures))
    process.kill()
    process.wait()
    process = _command(arguments)
    _wait(process, out, round(0.7 * pictures))
    os.kill(_actors()[0], signal.SIGKILL)
    if process.wait():
        raise subprocess.CalledProcessError(process.returncode, process.args)
    return 3, 1


def _wait(process: subprocess.Popen[bytes], out: Path, rows: int) -> None:
    while not out.exists() or out.read_bytes().count(b"\n") < rows:
        if process.poll() is not None:
            raise subprocess.CalledProcessError(process.returncode, process.args)
        time.sleep(0.05)


def _actors() -> list[int]:
    """The process ids of the actors, which Ray names; newest last."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"MapBatches(Answers" in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:  # it has ended
            continue
    return sorted(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="nano")
    parser.add_argument("--pictures", type=int, default=2000)
    parser.add_argument("--compared", type=int, default=400)
    parser.add_argument("--out", type=Path, default=RESULTS / "batch-ray.json")
    given = parser.parse_args()
    measured = measure(given.model, given.pictures, given.compared)
    write(given.out, record("batch-ray", measured).document())
    print(json.dumps(asdict(measured), indent=2))


if __name__ == "__main__":
    main()
