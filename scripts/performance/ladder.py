"""The gain of each optimisation: the ladders on the CPU and on a GPU."""

from __future__ import annotations

from scripts.performance.layout import (
    Chart,
    Document,
    Results,
    Section,
    machine,
    milliseconds,
    table,
)

TEXT = """## The ladder: the gain of each optimisation

By `qwink bench ladder`: each rung is a measured service, which adds one optimisation to the
previous rung. *Plain service* is Transformers in fp32 with all pixels decoded and Lanczos; it loads
the model for each request, as a service scaled to zero does. *Gain* is the previous rung's time per
answer divided by this one's, on the same questions: if a rung has different questions (30 % about
pictures seen shortly before; several users at once), the previous rung was run on them too. *All*
is the product of the gains so far. Rungs run one after the other, so another process on a shared
machine can affect a single rung.

*Agreement* is with the first rung: the same first token; the same tokens up to the first
difference; correlation of the first token's logits; and similarity of the prepared picture, resized
to the same size. *True* counts answers that contain the correct answer; random weights know none,
and nano reads single lines only.

The ladder of PyTorch on a GPU (`--gpu`) is shown only if it ran on a GPU.
"""


def section(results: Results) -> Section | None:
    family = results.family("ladder")
    found = {name: result for name, result in family.items() if _counts(result)}
    if not found:
        return None
    charts = {
        name: Chart(f"ladder-{name}", document, "qwink.lab.ladder.plot", "draw_ladder")
        for name, document in found.items()
    }
    parts = [_one(name, document, charts[name]) for name, document in found.items()]
    return Section("\n".join([TEXT, *parts]), tuple(charts.values()))


def _counts(result: Document) -> bool:
    """Whether a GPU's ladder was run on a GPU."""
    accelerator = result["facts"]["hardware"]["accelerator"]
    return result["settings"]["ladder"] == "cpu" or accelerator is not None


def _one(name: str, result: Document, chart: Chart) -> str:
    used, rungs = result["settings"], result["rungs"]
    left_out = [f"Left out: {key}, which {why}.\n" for key, why in result["left_out"].items()]
    times = ["rung", "mean ms", "p95", "load", "prepare", "first token", "an answer", "gain", "all"]
    quality = ["rung", "first token", "answer", "logits", "PSNR dB", "SSIM", "true"]
    return "\n".join(
        [
            f"### {name}\n",
            f"{result['model']}, {used['pictures']} pictures, at most {used['max_image_tokens']} "
            f"visual tokens for each, answers of up to {used['max_tokens']} tokens, "
            f"{used['threads']} threads. {machine(result)}",
            chart.as_image(f"The ladder of {name}"),
            table(times, map(_times, rungs)),
            table(quality, map(_quality, rungs)),
            *left_out,
        ]
    )


def _times(rung: Document) -> list[str]:
    times = rung["times"]
    shown = "mean_ms", "p95_ms", "load_ms", "prepare_ms", "first_token_ms", "per_answer_ms"
    return [
        f"{rung['key']} {rung['name']}",
        *(milliseconds(times[name]) if times[name] else "—" for name in shown),
        "" if rung["gain"] is None else f"**{rung['gain']:.2f}**",
        f"{rung['gain_over_first']:.3g}",
    ]


def _quality(rung: Document) -> list[str]:
    found, true = rung["quality"], f"{rung['right']} of {rung['known']}"
    name = f"{rung['key']} {rung['name']}"
    if found is None:
        return [name, *["—"] * 5, true]
    return [
        name,
        f"{found['first_token']:.0%}",
        f"{found['answer']:.0%}",
        f"{found['logits']:.3f}",
        "same" if found["psnr_db"] is None else f"{found['psnr_db']:.1f}",
        f"{found['ssim']:.3f}",
        true,
    ]
