"""What each optimisation brings: the ladder on the CPU, and the one on a GPU."""

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

TEXT = """## The ladder: what each optimisation brings

By `qwink bench ladder`: each rung is a service that was really run, and keeps what the rungs before
it brought. *Plain service* is what people write first: Transformers in fp32, every pixel decoded,
Lanczos, the model loaded when a request comes, as where services sleep between requests. *Gain* is
the rung before's time of an answer over this one's, on the same questions: where a rung brings
questions of its own (30 % about pictures seen shortly before; several users at once), the rung
before was run on them too. *All* multiplies the gains up to here. Rungs run one after the other, so
a neighbour that comes or goes on a shared machine shows in one rung.

*Agreement* is with the first rung: the same first token; the same tokens up to the first
difference; correlation of the first token's logits; and how near the prepared picture is, enlarged
to the same size where it is smaller. *True* counts answers that contain what is known to be true;
random weights know nothing, and nano reads single lines only.

The ladder of PyTorch on a GPU (`--gpu`) is shown only where a GPU climbed it.
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
    """A GPU's ladder that was only tried on a CPU says nothing."""
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
