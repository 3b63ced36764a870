"""`qwink bench plan`: waiting times and numbers of replicas, simulated."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qwink.cli.console import remark
from qwink.errors import OptionError

if TYPE_CHECKING:
    from qwink.lab.plan.replica import Room
    from qwink.lab.plan.simulate import Prediction, Routing
    from qwink.lab.plan.times import ServiceTimes
    from qwink.lab.plan.trace import Arrival


def plan(
    result: Annotated[
        Path | None,
        typer.Argument(help="JSON of qwink bench stages, or of an earlier plan; else --calibrate."),
    ] = None,
    calibrate: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Measure this model here first, as a server."),
    ] = None,
    threads: Annotated[
        int, typer.Option(metavar="N", min=1, help="With --calibrate, threads of a replica.")
    ] = 1,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="JSONL of requests: at_s, prompt_tokens, answer_tokens, and visual_tokens, "
            "picture, conversation, turn where there are any; by default requests are generated.",
        ),
    ] = None,
    rate: Annotated[
        float, typer.Option(metavar="R", help="Generated requests a second, at random times.")
    ] = 1.0,
    requests: Annotated[int, typer.Option(metavar="N", min=1, help="Generated requests.")] = 10_000,
    second: Annotated[
        float,
        typer.Option(
            metavar="SHARE", min=0, max=1, help="Generated requests about a picture shown before."
        ),
    ] = 0.3,
    visual_tokens: Annotated[
        str, typer.Option(metavar="N,...", help="Sizes of generated pictures, drawn evenly.")
    ] = "48,192,432",
    answer_tokens: Annotated[
        str, typer.Option(metavar="N,...", help="Lengths of generated answers, drawn evenly.")
    ] = "16,64,128",
    replicas: Annotated[
        str, typer.Option(metavar="N,...", help="Numbers of replicas, up to 1000.")
    ] = "1,2,4,8",
    routing: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="picture: a request goes to the replica that has its picture; load: to the least "
            "loaded one; both.",
        ),
    ] = "both",
    target_p95: Annotated[
        float | None,
        typer.Option(
            metavar="MS", help="Find the fewest replicas whose first tokens come so soon at p95."
        ),
    ] = None,
    max_running: Annotated[int, typer.Option(metavar="N", min=1, help="As for qwink serve.")] = 8,
    max_waiting: Annotated[int, typer.Option(metavar="N", min=1, help="As for qwink serve.")] = 64,
    tokens_per_step: Annotated[
        float, typer.Option(metavar="N", min=1, help="Above 1 where drafts are right.")
    ] = 1.0,
    own_cores: Annotated[
        bool,
        typer.Option("--own-cores", help="Pictures are decoded on cores that the engine leaves."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the JSON document there.")
    ] = None,
) -> None:
    """Predict waiting times for 1 to 1000 replicas, and how many a load needs.

    A simulator replays requests against measured times. It orders and shares work as the server
    does. The table goes to stderr; the last line of stdout is one JSON document.

    \b
    Examples:
      qwink bench plan stages.json --rate 5 --replicas 4,8,16
      qwink bench plan stages.json --rate 5 --target-p95 2000
      qwink bench plan --calibrate nano --trace requests.jsonl --out plan.json
    """
    from qwink.cli.bench.output import check_out, finish, numbers
    from qwink.lab.plan.replica import Room
    from qwink.lab.plan.simulate import ROUTINGS, simulate, smallest
    from qwink.lab.plan.trace import Mix, generate, read_trace
    from qwink.lab.record import record

    check_out(out)
    counts = numbers(replicas, "--replicas")
    if routing not in (*ROUTINGS, "both"):
        raise OptionError(f"--routing is {routing!r}; it must be picture, load or both")
    if target_p95 is not None and target_p95 <= 0:
        raise OptionError(f"--target-p95 is {target_p95:g}; it must be above 0")
    sizes = numbers(visual_tokens, "--visual-tokens")
    lengths = numbers(answer_tokens, "--answer-tokens")
    if trace is None:
        arrivals = generate(Mix(rate, requests, second, visual_tokens=sizes, answer_tokens=lengths))
    else:
        arrivals = read_trace(trace)
    times = _times(result, calibrate, threads)
    room = Room(max_running, max_waiting, tokens_per_step=tokens_per_step, own_cores=own_cores)
    ways = ROUTINGS if routing == "both" else tuple(w for w in ROUTINGS if w == routing)
    found = [simulate(arrivals, times, count, way, room) for count in counts for way in ways]
    fewest: dict[str, Prediction | None] = {}
    for way in ways if target_p95 is not None else ():
        remark(f"looking for the fewest replicas, routed by {way}")
        predict = partial(_predict, arrivals, times, way, room)
        fewest[way] = smallest(predict, target_p95 or 0.0)
    _show(times, found)
    for name, prediction in fewest.items():
        if prediction is None:
            remark(f"routed by {name}, no number of replicas reaches {target_p95:g} ms")
        else:
            remark(f"routed by {name}, {prediction.replicas} replicas reach {target_p95:g} ms")
    measured = {"times": times.document(), "predictions": found, "target_p95_ms": target_p95}
    finish(record("plan", _plain(measured | {"fewest": fewest})).document(), out)


def _predict(
    arrivals: Sequence[Arrival], times: ServiceTimes, routing: Routing, room: Room, replicas: int
) -> Prediction:
    from qwink.lab.plan.simulate import simulate

    return simulate(arrivals, times, replicas, routing, room)


def _times(result: Path | None, model: str | None, threads: int) -> ServiceTimes:
    if (result is None) == (model is None):
        raise OptionError("give either a result of qwink bench stages or --calibrate MODEL")
    if result is not None:
        from qwink.lab.plan.times import of_record
        from qwink.lab.record import read

        return of_record(read(result))
    from qwink.lab.plan.calibrate import calibrate

    assert model is not None
    return calibrate(model, threads, remark)


def _plain(value: object) -> dict[str, object]:
    """Dataclasses inside as dictionaries."""
    from dataclasses import asdict, is_dataclass

    def plain(node: object) -> object:
        if is_dataclass(node) and not isinstance(node, type):
            return asdict(node)
        if isinstance(node, dict):
            return {name: plain(item) for name, item in node.items()}
        return [plain(item) for item in node] if isinstance(node, list) else node

    found = plain(value)
    assert isinstance(found, dict)
    return found


def _show(times: ServiceTimes, predictions: list[Prediction]) -> None:
    from qwink.cli.bench.output import milliseconds, show

    head = ["replicas", "routed by", "first token p50", "p95", "p99", "answer p50", "p95", "p99"]
    rows = []
    for one in predictions:
        ends = (one.first_token_ms, one.total_ms)
        share = "—" if one.found_share is None else f"{one.found_share:.0%}"
        rows.append(
            [
                str(one.replicas),
                one.routing,
                *(milliseconds(v) for end in ends for v in (end.p50, end.p95, end.p99)),
                f"{one.utilisation:.0%}",
                share,
                f"{one.answers_per_hour:.0f}",
                str(one.num_refused),
            ]
        )
    title = f"{times.model}, {times.threads} thread{'s' * (times.threads > 1)}: predicted ms"
    show(title, [*head, "used", "found", "answers/hour", "refused"], rows)
