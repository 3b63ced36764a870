"""qwink compared with other engines: the same picture, prompt and number of tokens, in turns.

    python -m qwink.lab.peers.compare --artifact fast=DIR --artifact balanced=DIR --home peers

The peers are those that `python -m benchmarks.peers.install` installed into the folder `--home`;
the others are reported as absent. Each contender is a process, loaded once and stopped while
another is measured. Rounds go A B C A B C, each with a new picture, so that noise of the machine
affects all contenders alike. Ratios are taken within a round. `--tried PEER` measures all settings
of one peer instead, each in turns with the first of ours alone. `--cpu avx2` compares as on a
processor of that kind, `--cpu all` on every kind: see `cap`. Writes JSON to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from qwink.engine.threads import physical_cores
from qwink.lab.peers.cap import CPUS, Cap
from qwink.lab.peers.contenders import SETTINGS, Contender, Setting, contender, installed, ours
from qwink.lab.peers.processors import NOT_MEASURED, each, merged
from qwink.lab.peers.turns import QUESTION, Table, TurnsPlan, start_cold, take_turns
from qwink.lab.peers.worker import PeerFailed
from qwink.lab.record import RESULTS, record, write
from qwink.lab.statistics import paired_ratio, summarise

FEW_FAULTS = 10  # pages read from disk within a round; so few do not change its time
ALL = "all"
RATIOS = ("first_token_ms", "decode_ms_per_token", "cold_start_ms")


def same_work(table: Table) -> dict[str, int]:
    """The length of the prompt. Raises SystemExit when contenders disagree."""
    lengths = {num_prompt for num_prompt, _ in table.prompts.values()}
    visual = {found for _, found in table.prompts.values() if found is not None}
    if len(lengths) > 1 or len(visual) > 1:
        raise SystemExit(f"the contenders' prompts differ in length: {table.prompts}")
    return {"num_prompt_tokens": lengths.pop(), "num_visual_tokens": visual.pop()}


def summary(table: Table) -> dict[str, Any]:
    return {
        name: {
            "versions": table.versions[name],
            **{key: asdict(summarise(values)) for key, values in figures.items()},
        }
        for name, figures in table.figures.items()
    }


def times_faster(table: Table, own: str, peers: Sequence[str]) -> dict[str, Any]:
    """Peer → measure → its time divided by ours, round by round."""
    mine = table.figures[own]
    return {
        peer: {key: asdict(paired_ratio(theirs[key], mine[key])) for key in RATIOS if key in theirs}
        for peer in peers
        for theirs in (table.figures[peer],)
    }


def compare(
    own: Sequence[Contender], peers: Sequence[Contender], plan: TurnsPlan
) -> dict[str, Any]:
    """All of ours in turns with the peers; then each `apart` peer with the first of ours alone."""
    result: dict[str, Any] = {"work": {}, "contenders": {}, "times_faster": {}, "absent": {}}
    groups = [(own, [peer for peer in peers if not peer.apart])]
    groups += [(own[:1], [peer]) for peer in peers if peer.apart]
    for mine, others in [group for group in groups if group[1]] or [(own, [])]:
        table = Table()
        together = [*mine, *others]
        take_turns(together, plan, table)
        start_cold(together, plan, table)
        measured = [one.name for one in others if one.name not in table.absent]
        result["work"] = same_work(table)
        for name, figures in summary(table).items():
            # Figures of ours come from the first group, the comparison with most peers.
            result["contenders"].setdefault(name, figures)
        result["absent"] |= table.absent
        for one in mine:
            found = times_faster(table, one.name, measured)
            result["times_faster"].setdefault(one.name, {}).update(found)
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--artifact", action="append", required=True, metavar="NAME=DIR")
    parser.add_argument("--home", type=Path, default=Path("peers"))
    parser.add_argument("--tried", choices=sorted({setting.peer for setting in SETTINGS}))
    parser.add_argument("--only", action="append", metavar="SETTING")
    parser.add_argument("--cpu", choices=(*CPUS, ALL), help="hide what such a processor lacks")
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("--rounds", type=int, default=TurnsPlan.rounds)
    parser.add_argument("--cold-starts", type=int, default=TurnsPlan.cold_starts)
    parser.add_argument("--tokens", type=int, default=TurnsPlan.num_tokens)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(arguments)

    name = f"peers-{args.tried}" if args.tried else "processors" if args.cpu else "peers"
    out = args.out or RESULTS / f"{name}.json"
    if args.cpu:
        kinds = CPUS if args.cpu == ALL else (args.cpu,)
        found = each(kinds, lambda cap: taken(args, cap))
        write(out, merged(out, found).document())
        shown = {cpu: short(one) for cpu, one in found.items()}
    else:
        result = taken(args)
        write(out, record("peers", result).document())
        shown = medians(result)
    print(json.dumps(shown))


def short(found: dict[str, Any]) -> Any:
    return found[NOT_MEASURED] if NOT_MEASURED in found else medians(found)


def taken(args: argparse.Namespace, cap: Cap | None = None) -> dict[str, Any]:
    """The comparison that the options ask for. Raises SystemExit if one of ours does not load."""
    chosen = [setting for setting in SETTINGS if wanted(setting, args.only, args.tried)]
    peers, absent = [], dict[str, str]()
    for setting in chosen:
        python, reason = installed(setting.peer, args.home, cap)
        if python is None:
            absent[setting.name] = reason
        else:
            peers.append(contender(setting, args.home, python, bool(args.tried), cap))
    plan = TurnsPlan(args.threads, args.rounds, args.cold_starts, args.tokens)
    try:
        result = compare(ours(args.artifact, cap), peers, plan)
    except PeerFailed as error:
        raise SystemExit(str(error)) from None
    result["absent"] |= absent
    result |= {
        "question": QUESTION,
        **asdict(plan),
        "settings": {setting.name: setting.options for setting in chosen},
    }
    for name, found in result["contenders"].items():
        if found["num_major_faults"]["median"] > FEW_FAULTS:
            print(
                f"warning: {name} read from disk in most rounds; there is too little memory "
                "for all engines at once, or another program uses it",
                file=sys.stderr,
            )
    return result


def wanted(setting: Setting, only: Sequence[str] | None, tried: str | None) -> bool:
    if only is not None:
        return setting.name in only
    return setting.best if tried is None else setting.peer == tried


def medians(result: dict[str, Any]) -> dict[str, Any]:
    """How many times faster, without the spread."""
    return {
        own: {
            peer: {key: value["median"] for key, value in found.items()}
            for peer, found in times.items()
        }
        for own, times in result["times_faster"].items()
    }


if __name__ == "__main__":
    main()
