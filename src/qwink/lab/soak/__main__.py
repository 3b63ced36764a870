"""Long, mixed load on a server that is killed and restarted.

    python -m qwink.lab.soak [MODEL ...] [--minutes 10] [--concurrency 16] [--out FILE]

For each model, a server answers some questions one at a time; another one answers them under load,
streamed and whole, beside bad, slow, huge and abandoned requests. It is killed three times and
stopped once, and keeps its store of encoded images. Exit code 1 if an answer differs, a request
gets a 5xx other than a restart's 503, memory or threads grow, or the store has damaged entries.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

from qwink.lab.record import RESULTS, record, write
from qwink.lab.soak.run import Plan, soak
from qwink.lab.soak.verdict import table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("models", nargs="*", default=["nano"], metavar="MODEL")
    parser.add_argument("--minutes", type=float, default=10.0, help="of each model")
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--memory-mb", type=int, default=96)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out", type=Path, default=RESULTS / "soak.json")
    args = parser.parse_args()
    found = []
    for model in args.models:
        plan = Plan(
            model,
            60 * args.minutes,
            args.concurrency,
            args.questions,
            args.threads,
            args.memory_mb,
        )
        found.append(soak(plan, lambda line: print(line, file=sys.stderr, flush=True)))
        print(table(found[-1]), flush=True)
    write(args.out, record("soak", {"arms": [asdict(one) for one in found]}).document())
    sys.exit(any(one.failures for one in found))


if __name__ == "__main__":
    main()
