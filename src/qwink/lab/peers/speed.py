"""First token and decoding speed of the recipes against Transformers, interleaved in one run.

    python -m qwink.lab.peers.speed CHECKPOINT --artifact fast=DIR --artifact balanced=DIR

The method is that of `qwink.lab.peers.compare`; Transformers runs in this environment. All models
are in memory at once: with little memory, run it for a few recipes at a time. Writes JSON to
benchmarks/results/.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from qwink.engine.threads import physical_cores
from qwink.lab.peers.compare import same_work, summary, times_faster
from qwink.lab.peers.contenders import ADAPTERS, Contender, ours
from qwink.lab.peers.turns import Table, TurnsPlan, take_turns
from qwink.lab.peers.worker import PeerFailed
from qwink.lab.record import RESULTS, Record, record, write

TRANSFORMERS = "transformers"


def measure(
    own: Sequence[Contender], reference: Contender, plan: TurnsPlan
) -> Record[dict[str, Any]]:
    """Raises PeerFailed if a contender does not load."""
    table = Table()
    take_turns([*own, reference], plan, table)
    for reason in table.absent.values():
        raise PeerFailed(reason)
    work = same_work(table)
    ratios = {}
    for one in own:
        found = times_faster(table, one.name, [reference.name])[reference.name]
        ratios[one.name] = {key: ratio["median"] for key, ratio in found.items()}
    versions = {name: v for used in table.versions.values() for name, v in used.items()}
    measured = {
        "work": f"{plan.side}x{plan.side} picture, {work['num_visual_tokens']} visual tokens, "
        f"prompt of {work['num_prompt_tokens']}, batch 1, greedy",
        "threads": plan.threads,
        "rounds": plan.rounds,
        "contenders": summary(table),
        "times_faster_than": {reference.name: ratios},
    }
    found = record("speed", measured)
    assert found.facts is not None, "collected just now"
    facts = replace(found.facts, versions=found.facts.versions | versions)
    return replace(found, facts=facts)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkpoint")
    parser.add_argument("--artifact", action="append", required=True, metavar="NAME=DIR")
    parser.add_argument("--dtype", default="bfloat16", help="of Transformers")
    parser.add_argument("--rounds", type=int, default=TurnsPlan.rounds)
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("--tokens", type=int, default=TurnsPlan.num_tokens)
    parser.add_argument("--out", type=Path, default=RESULTS / "speed.json")
    args = parser.parse_args(arguments)
    reference = Contender(
        f"{TRANSFORMERS}-{args.dtype}",
        TRANSFORMERS,
        ADAPTERS[TRANSFORMERS],
        sys.executable,
        {"model": args.checkpoint, "dtype": args.dtype},
    )
    plan = TurnsPlan(args.threads, args.rounds, num_tokens=args.tokens)
    try:
        result = measure(ours(args.artifact), reference, plan)
    except PeerFailed as error:
        raise SystemExit(str(error)) from None
    write(args.out, result.document())
    print(json.dumps(result.measured["times_faster_than"]))


if __name__ == "__main__":
    main()
