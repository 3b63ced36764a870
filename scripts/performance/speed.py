"""First token and decoding, against Transformers."""

from __future__ import annotations

from scripts.performance.layout import Document, Results, Section, machine, spread, table

REFERENCE = "transformers-bfloat16"


def section(results: Results) -> Section | None:
    found = results.read("speed")
    if found is None:
        return None
    parts = ["## First token and decoding, against Transformers\n", _comparison(found)]
    notes = results.folder / "speed-notes.md"
    if notes.is_file():
        parts.append(notes.read_text("utf-8"))
    return Section("\n".join(parts))


def _comparison(result: Document) -> str:
    faster = result["times_faster_than"][REFERENCE]
    rows = []
    for contender, figures in result["contenders"].items():
        ratio = faster.get(contender)
        rows.append(
            [
                contender,
                spread(figures["encode_ms"]) if "encode_ms" in figures else "",
                spread(figures["prefill_ms"]) if "prefill_ms" in figures else "",
                spread(figures["first_token_ms"]),
                f"**{ratio['first_token_ms']:.2f}**" if ratio else "1",
                spread(figures["decode_ms_per_token"], 1),
                f"**{ratio['decode_ms_per_token']:.2f}**" if ratio else "1",
                f"{figures['peak_rss_bytes']['max'] / 2**30:.1f}",
            ]
        )
    head = ["", "encode ms", "prefill ms", "first token ms", "times faster", "ms per token"]
    head += ["times faster", "peak GiB"]
    work = f"{result['work']}; {result['threads']} threads, {result['rounds']} rounds."
    return f"{work[0].upper()}{work[1:]}\n{machine(result)}\n{table(head, rows)}"
