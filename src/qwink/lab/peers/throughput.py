"""Pictures per hour: a question about each of many pictures, by qwink and by other engines.

    python -m qwink.lab.peers.throughput --artifact DIR --home peers --cpu avx2

Each engine uses its own way to run many requests at once: `qwink.batch`, OpenVINO GenAI's
continuous batching, llama.cpp's server. All settings of a peer are tried on few pictures; the best
of each peer then takes turns with qwink. Engines are loaded one at a time, since memory does not
hold all with their caches; loading is not counted. Pictures and questions are those of `compare`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from qwink.engine.threads import physical_cores
from qwink.lab.peers.cap import CPUS, Cap, cap
from qwink.lab.peers.contenders import CROWDS, OURS, Contender, Setting, contender, installed
from qwink.lab.peers.turns import QUESTION, picture
from qwink.lab.peers.worker import PeerFailed, Worker
from qwink.lab.record import RESULTS, record, write
from qwink.lab.statistics import paired_ratio, summarise

Values = dict[str, list[float]]


def mine(artifact: str, running: int, made: Cap | None) -> Contender:
    """qwink in this environment."""
    options = {"model": artifact, "running": running}
    variables = made.variables if made else {}
    return Contender(OURS, OURS, "qwink_crowd", sys.executable, options, variables=variables)


class Rounds:
    """Answers about pictures that no engine has seen, with the plan's sizes."""

    def __init__(self, plan: argparse.Namespace) -> None:
        self._plan = plan
        self._used = 0
        self.versions: dict[str, dict[str, str]] = {}

    def pictures(self, count: int) -> list[bytes]:
        """New ones."""
        first, self._used = self._used, self._used + count
        return [picture(number, self._plan.side) for number in range(first, first + count)]

    def measure(self, one: Contender, pictures: Sequence[bytes]) -> dict[str, Any]:
        """One process, from loaded to the last answer. Raises PeerFailed."""
        plan = self._plan
        with Worker(one, plan.threads) as worker:
            worker.ask_all(self.pictures(1), QUESTION, 2)  # warm up
            found = worker.ask_all(pictures, QUESTION, plan.tokens)
            self.versions[one.name] = worker.versions or {}
        shown = {key: round(found[key]) for key in ("images_per_hour", "num_major_faults")}
        print(one.name, shown, file=sys.stderr, flush=True)
        return found


def best(
    settings: Sequence[Setting], plan: argparse.Namespace, made: Cap | None, rounds: Rounds
) -> tuple[list[Contender], dict[str, float], dict[str, str]]:
    """The best setting of each peer, pictures per hour of all, and why some are absent."""
    tried: dict[str, float] = {}
    absent: dict[str, str] = {}
    found: dict[str, Contender] = {}
    pictures = rounds.pictures(plan.tries)
    for setting in settings:
        python, reason = installed(setting.peer, plan.home, made)
        if python is None:
            absent[setting.name] = reason
            continue
        one = contender(setting, plan.home, python, cap=made)
        try:
            tried[one.name] = rounds.measure(one, pictures)["images_per_hour"]
        except PeerFailed as error:
            absent[one.name] = str(error)
            print(error, file=sys.stderr, flush=True)
            continue
        if one.peer not in found or tried[one.name] > tried[found[one.peer].name]:
            found[one.peer] = one
    return list(found.values()), tried, absent


def compare(plan: argparse.Namespace, made: Cap | None) -> dict[str, Any]:
    """Rounds of qwink and the best of each peer. Raises SystemExit if ours does not load."""
    rounds = Rounds(plan)
    chosen = [one for one in CROWDS if plan.only is None or one.name in plan.only]
    peers, tried, absent = best(chosen, plan, made, rounds)
    values: dict[str, Values] = {}
    try:
        for _ in range(plan.rounds):
            pictures = rounds.pictures(plan.pictures)
            for one in (mine(plan.artifact, plan.running, made), *peers):
                for key, value in rounds.measure(one, pictures).items():
                    values.setdefault(one.name, {}).setdefault(key, []).append(value)
    except PeerFailed as error:
        raise SystemExit(str(error)) from None
    our = values[OURS]["images_per_hour"]
    return {
        "work": {name: getattr(plan, name) for name in ("pictures", "side", "tokens", "threads")},
        "question": QUESTION,
        "contenders": {
            name: {
                "versions": rounds.versions[name],
                **{key: asdict(summarise(series)) for key, series in each.items()},
            }
            for name, each in values.items()
        },
        "times_more": {
            name: asdict(paired_ratio(our, each["images_per_hour"]))
            for name, each in values.items()
            if name != OURS
        },
        "tried": tried,
        "absent": absent,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--artifact", required=True, metavar="DIR")
    parser.add_argument("--home", type=Path, default=Path("peers"))
    parser.add_argument("--cpu", choices=CPUS, help="hide what such a processor lacks")
    parser.add_argument("--only", action="append", metavar="SETTING", help="try these alone")
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("--running", type=int, default=8, help="answers of qwink at once")
    parser.add_argument("--pictures", type=int, default=16, help="of each round")
    parser.add_argument("--tries", type=int, default=4, help="pictures to try each setting with")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--side", type=int, default=448, help="of pictures, in pixels")
    parser.add_argument("--out", type=Path, default=RESULTS / "throughput.json")
    args = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="qwink-cap-") if args.cpu else nullcontext("") as folder:
        result = compare(args, cap(args.cpu, Path(folder)) if args.cpu else None)
    write(args.out, record("throughput", result).document())
    print(json.dumps(result["times_more"]))


if __name__ == "__main__":
    main()
