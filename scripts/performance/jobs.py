"""What people come with: users at once, films, pages, extraction, many pictures, long runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scripts.performance.layout import Results, Section, machine, table

Result = dict[str, Any]
_KINDS = {"json": "records as JSON", "text": "plain text", "random": "random tokens"}


_LLAMA_WAYS = {
    "free": "free",
    "grammar": "in a JSON grammar",
    "ngrams": "free, with n-grams",
    "ngrams_grammar": "in a JSON grammar, with n-grams",
}


def section(results: Results) -> Section | None:
    parts = [make(found) for name, make in _PARTS.items() if (found := results.read(name))]
    return Section("## Jobs\n\n" + "\n".join(parts)) if parts else None


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1e3:.1f}"


def _users(result: Result) -> str:
    rows = []
    for name, one in zip(("before", "now"), result["checkouts"], strict=False):
        gap, first = one["gap_ms"], one["first_token_ms"]
        rows.append(
            [
                name,
                f"{gap['median']:.0f}, {gap['p95']:.0f}",
                f"{_seconds(first['median'])}, {_seconds(first['p95'])}",
                f"{one['answers_per_minute']:.2f}",
            ]
        )
    head = [
        "",
        "gap between pieces, ms (median, p95)",
        "first token, s (median, p95)",
        "answers/min",
    ]
    sides = result["sides"]
    return (
        "### Users at once\n\n"
        f"{result['users']} users, new pictures of {sides[0]} to {sides[-1]} px "
        f"for {result['minutes']:g} minutes; artifact `{result['artifacts'][-1]}`, two commits in "
        f"turns. Median and 95th percentile. {machine(result)}\n" + table(head, rows)
    )


def _film(result: Result) -> str:
    rows = [
        [what, _seconds(one["first_token_ms"]["median"]), _seconds(one["total_ms"]["median"])]
        for what, one in (
            ("first question", result["first_question"]),
            ("second question", result["second_question"]),
        )
    ]
    return (
        f"### A film\n\n{result['seconds']} s, {result['prompt_tokens']} prompt tokens, "
        f"{result['completion_tokens']} generated. {machine(result)}\n"
        + table(["", "first token s", "whole answer s"], rows)
    )


def _strips(result: Result) -> str:
    ways = {"as a whole": result["whole"], f"in {result['strips']} strips": result["in_strips"]}
    ways |= {name: one for name, one in result.get("peers", {}).items() if "total_ms" in one}
    rows = [
        [name, _seconds(one["first_token_ms"]["median"]), _seconds(one["total_ms"]["median"])]
        for name, one in ways.items()
    ]
    return (
        f"### A page of {result['words']} words\n\n"
        f"{result['whole']['image_tokens']} visual tokens, "
        f"{result['whole']['completion_tokens']} tokens of a known text, replayed. Strips end "
        f"**{result['times_sooner']['median']:.2f}×** sooner. {machine(result)}\n"
        + table(["", "first token s", "to the end s"], rows)
    )


def _extract(result: Result) -> str:
    rows = [
        [
            _KINDS[one["kind"]],
            one["arm"],
            f"{one['tokens_per_step']:.2f}",
            f"{one['generate_gain']:.2f}",
            f"{one['total_gain']:.2f}",
        ]
        for one in result["arms"]
    ]
    head = ["known answers", "", "tokens a step", "generate ×", "whole answer ×"]
    return (
        f"### Extraction\n\nReplayed answers, recipe `{result['recipe']}`, gains against no drafts "
        f"and no forced tokens. {machine(result)}\n" + table(head, rows)
    )


def _throughput(result: Result) -> str:
    more = result["times_more"]
    rows = [
        [
            name,
            f"{one['images_per_hour']['median']:.0f}",
            f"**{more[name]['median']:.2f}**" if name in more else "",
        ]
        for name, one in result["contenders"].items()
    ]
    work = result["work"]
    return (
        f"### Many pictures\n\nOne question about each of {work['pictures']} pictures of "
        f"{work['side']}×{work['side']} px, {work['tokens']} tokens each; engines at the best of "
        f"their tried settings. {machine(result)}\n"
        + table(["", "pictures per hour", "qwink is × of it"], rows)
    )


def _structured(result: Result) -> str:
    rows = [
        [
            str(run["together"]),
            f"{run['without_ms_per_token']['median']:.1f}",
            f"{run['with_ms_per_token']['median']:.1f}",
            f"{100 * (run['cost']['median'] - 1):+.1f} %",
        ]
        for run in result["runs"]
    ]
    head = ["answers together", "ms a step", "with a grammar", "cost"]
    return f"### The cost of a grammar\n\n{machine(result)}\n" + table(head, rows)


def _pdf(result: Result) -> str:
    rows = [
        [
            name,
            f"{result[name]['seconds']:.1f}",
            f"{result[name]['encode_ms']:.0f}",
            ", ".join(map(str, result[name]["rss_mib"])),
        ]
        for name in ("first", "second")
    ]
    head = ["run", "s", "encode ms", "memory MiB: first page, middle, last"]
    return (
        f"### A PDF of {result['pages']} pages\n\nEach page read by {result['model']}; the second "
        f"run finds encoded images on disk. {machine(result)}\n" + table(head, rows)
    )


def _batch(result: Result) -> str:
    return (
        "### `qwink batch` beside a shell loop\n\n"
        f"{result['pictures']} pictures of 448×448 px with {result['model']}: "
        f"{result['batch_s']:.1f} s, {result['batch_rate']:.1f} pictures a second; a loop of "
        f"`qwink ask`: {result['loop_rate']:.2f}. **{result['ratio']:.0f}×**. {machine(result)}\n"
    )


def _llama(result: Result) -> str:
    rows = [
        [
            _LLAMA_WAYS[one["way"]],
            f"{one['ms_per_token']['median']:.1f}",
            f"{one['gain']['median']:.2f}",
        ]
        for one in result["ways"]
    ]
    head = ["llama.cpp", "ms a token", "against free, ×"]
    return (
        f"### llama.cpp's grammar and n-grams\n\n{result['tokens']} tokens, `{result['model']}`. "
        "Its answers cannot be replayed: those of random weights repeat one word, where n-grams "
        "are right nearly always. Their gains are an upper bound, and no gain for records. "
        f"{machine(result)}\n" + table(head, rows)
    )


def _exactness(result: Result) -> str:
    rows = [
        [
            one["model"],
            str(one["requests"]),
            str(one["shaped"]),
            str(one["drawn"]),
            str(one["ways"][-1]["accepted"]),
            *(str(way["num_different"]) for way in one["ways"][1:]),
        ]
        for one in result["models"]
    ]
    head = [
        *("model", "requests", "with a shape", "drawn", "accepted drafts"),
        *("different in batches", "different in batches with drafts"),
    ]
    return (
        "### Exactness\n\nAnswers to the same requests one by one, in batches of mixed shapes, and "
        "in such batches with drafts. Different means any difference of the text, the end, or a "
        f"log-probability. {machine(result)}\n" + table(head, rows)
    )


_PARTS: dict[str, Callable[[Result], str]] = {
    "users": _users,
    "throughput": _throughput,
    "batch-nano": _batch,
    "strips": _strips,
    "pdf": _pdf,
    "film": _film,
    "extract": _extract,
    "extract-llama.cpp": _llama,
    "structured": _structured,
    "exactness": _exactness,
}
