"""The shared store: what it saves a second machine, and by how much its faults delay answers.

    python -m qwink.lab.store.measure ARTIFACT [--sides 448 1024] [--rounds 4 2] [--answers 20]

Needs redis-server. Without an ARTIFACT, only nano's answers with a broken Redis are measured.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from qwink.engine.threads import physical_cores
from qwink.lab.facts import PACKAGES
from qwink.lab.pictures.sample import clouds
from qwink.lab.record import RESULTS, record, write
from qwink.lab.store import compression, faults, machines
from qwink.runtime.models import load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("artifact", nargs="?")
    parser.add_argument("--sides", type=int, nargs="+", default=[448, 1024])
    parser.add_argument("--rounds", type=int, nargs="+", default=[4, 2], help="for each side")
    parser.add_argument("--answers", type=int, default=20)
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("--out", type=Path, default=RESULTS / "store.json")
    args = parser.parse_args()
    measured: dict[str, Any] = {"threads": args.threads}
    with TemporaryDirectory(prefix="qwink-store-") as name:
        folder = Path(name)
        delays = faults.measure(args.answers, folder, args.threads)
        measured["faults"] = [asdict(delay) for delay in delays]
        if args.artifact:
            sizes = machines.measure(args.artifact, args.sides, args.rounds, args.threads, folder)
            measured["second_machine"] = [asdict(size) for size in sizes]
            measured["compression"] = _compression(args.artifact, args.sides[0], args.threads)
    packages = (*PACKAGES, "redis")
    write(args.out, record("store", measured, packages).document())
    print(json.dumps(measured))


def _compression(artifact: str, side: int, threads: int) -> list[dict[str, Any]]:
    with load(artifact, threads=threads, context=2048) as vlm:
        pictures = [np.asarray(clouds(seed, side)) for seed in range(2)]
        area = side * side
        images = [vlm.encode(one, min_pixels=area, max_pixels=area) for one in pictures]
    return [asdict(one) for one in compression.measure(images)]


if __name__ == "__main__":
    main()
