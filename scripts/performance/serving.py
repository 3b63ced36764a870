"""The gain of caches and continuous batching."""

from __future__ import annotations

from scripts.performance.layout import Results, Section, machine, table


def section(results: Results) -> Section | None:
    result = results.read("serving")
    if result is None:
        return None
    reuse, batching, fairness = result["reuse"], result["batching"], result["fairness"]
    rows = [
        [
            kind.replace("_", " "),
            f"{ms:.0f}",
            f"**{reuse['times_faster_than_new'][kind]:.1f}**" if kind != "new" else "1",
        ]
        for kind, ms in reuse["first_token_ms"].items()
    ]
    streams = [
        [streams, f"{rate:.1f}", f"**{batching['times_one_stream'][streams]:.2f}**"]
        for streams, rate in batching["tokens_per_second"].items()
    ]
    return Section(
        "## Caches and batching\n\n"
        f"Artifact `{result['artifact']}`, {result['work']}. {machine(result)}\n"
        + table(["question", "first token ms", "times faster"], rows)
        + "\n"
        + table(["streams together", "tokens per second", "times one"], streams)
        + f"\nLongest gap in a running stream while another user's picture is encoded and "
        f"prefilled: {fairness['longest_gap_ms']:.0f} ms, {fairness['gap_over_encode']:.2f} times "
        f"one run of the vision encoder ({fairness['encode_ms']:.0f} ms).\n"
    )
