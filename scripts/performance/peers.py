"""qwink compared with other engines."""

from __future__ import annotations

from scripts.performance.layout import Document, Results, Section, machine, spread, table

TEXT = """## Beside other engines

By `python -m qwink.lab.peers.compare`: the same picture as JPEG in memory, prompt and number of
output tokens, each engine in a separate process, through its public interface and at the best of
the settings tried. They take turns; a process is stopped while another is measured. *First token*
runs from the picture's bytes to the first token; *cold start* from the start of the process to the
first token, with files in the page cache as far as memory goes. *Times ours* is the peer's time
over ours, round by round: the median, the least and the largest.
"""
TRIED = """### Settings tried

Short runs, each setting in turns with `fast` alone: compare by the ratios, which are to the `fast`
of the same minutes.
"""
KEYS = ("first_token_ms", "decode_ms_per_token", "cold_start_ms")


def section(results: Results) -> Section | None:
    result = results.read("peers")
    if result is None:
        return None
    parts = [TEXT, work(result), contenders(result), ratios(result)]
    parts += [f"- `{name}` is absent: {reason}" for name, reason in result["absent"].items()]
    tried = results.family("peers")
    if tried:
        parts += [TRIED, *(_tried(document) for document in tried.values())]
    return Section("\n".join(parts))


def work(result: Document) -> str:
    work, side = result["work"], result["side"]
    versions: dict[str, str] = {}
    for found in result["contenders"].values():
        versions |= found["versions"]
    where = machine({"facts": {**result["facts"], "versions": versions}})
    return (
        f"{side}×{side} px, {work['num_visual_tokens']} visual tokens in a prompt of "
        f"{work['num_prompt_tokens']}, {result['num_tokens']} output tokens, greedy; "
        f"{result['threads']} threads, {result['rounds']} rounds. {where}"
    )


def contenders(result: Document) -> str:
    head = ["", "first token ms", "p95", "ms per token", "p95", "cold start s", "peak GiB"]
    return table(head, (_row(name, found) for name, found in result["contenders"].items()))


def _row(name: str, found: Document) -> list[str]:
    first, token, cold = (found.get(key) for key in KEYS)
    return [
        f"`{name}`",
        spread(first) if first else "—",
        f"{first['p95']:.0f}" if first else "—",
        spread(token, 1) if token else "—",
        f"{token['p95']:.1f}" if token else "—",
        spread({key: cold[key] / 1e3 for key in ("median", "min", "max")}, 1) if cold else "—",
        f"{found['peak_rss_bytes']['max'] / 2**30:.1f}",
    ]


def ratios(result: Document) -> str:
    """A table for each of ours: how many times its time the peers take."""
    tables = []
    for own, peers in result["times_faster"].items():
        rows = [
            [f"`{peer}`", *(_ratio(found[key]) if key in found else "—" for key in KEYS)]
            for peer, found in peers.items()
        ]
        head = [f"times `{own}`", "first token", "per token", "cold start"]
        tables.append(table(head, rows))
    return "\n".join(tables)


def _ratio(figure: dict[str, float]) -> str:
    return f"**{figure['median']:.2f}** ({figure['min']:.2f}–{figure['max']:.2f})"


def _tried(result: Document) -> str:
    """Ratios are to ours, of which there is one in these runs."""
    (ratios,) = result["times_faster"].values()
    head = ["", "settings", "first token ms", "times ours", "ms per token", "times ours"]
    return table(
        head,
        (
            [
                f"`{name}`",
                _options(result["settings"][name]),
                spread(found["first_token_ms"]),
                f"**{ratios[name]['first_token_ms']['median']:.2f}**",
                spread(found["decode_ms_per_token"], 1),
                f"**{ratios[name]['decode_ms_per_token']['median']:.2f}**",
            ]
            for name, found in result["contenders"].items()
            if name in ratios
        ),
    )


def _options(options: Document) -> str:
    """Files by their names; what is the adapter's and what is the peer's own, in one line."""
    parts = []
    for key, value in options.items():
        if isinstance(value, dict):
            parts.append(_options(value))
        elif isinstance(value, str) and "/" in value:
            parts.append(value.rpartition("/")[2])
        else:
            parts.append(f"{key} {value}")
    return ", ".join(parts)
