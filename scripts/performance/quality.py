"""Quality of the recipes."""

from __future__ import annotations

from scripts.performance.layout import Document, Results, Section, table

TEXT = """## Quality of the recipes

Three measurements, none of them on the real model:

- **Signal-to-noise and agreement with `exact`** on the random full-size checkpoint, and on one with
  planted outliers (four channels × 30 in the residual stream, a first token whose MLP activation
  is about a thousand times the usual). Logits of random weights are nearly flat, so that first
  choices change easily: compare the recipes with each other, not with 100 %.
- **nano's accuracy** on held-out pictures: the effect on answers, on a tiny model.
- On small random checkpoints, `exact` equals Transformers in fp32 to 1e-3 (tests, in CI).
"""


def section(results: Results) -> Section:
    plain, outliers = results.read("quality"), results.read("quality-outliers")
    nano = results.read("nano")
    parts = [TEXT]
    if plain and outliers:
        parts.append(_agreement(plain["recipes"], outliers["recipes"]))
    if nano:
        parts.append(_nano(nano))
    return Section("\n".join(parts))


def _agreement(plain: Document, outliers: Document) -> str:
    rows = []
    for recipe, found in plain.items():
        row = [f"`{recipe}`"]
        for result in (found, outliers.get(recipe)):
            for phase in ("prefill", "decode"):
                if result is None:
                    row.append("—")
                else:
                    part = result[phase]
                    row.append(f"{part['snr_db']} dB, {part['top1_agreement']:.0%}")
        rows.append(row)
    head = ["recipe", "prefill", "decode", "prefill, outliers", "decode, outliers"]
    return table(head, rows)


def _nano(result: Document) -> str:
    parts = ["read", "colour", "shape"]
    rows = []
    for group, kind in (("recipes", "recipe"), ("filters", "filter, from twice the size")):
        for name, scores in result[group].items():
            row = [f"{kind} `{name}`"]
            for part in parts:
                found = scores.get(part)
                row.append("—" if found is None else f"{found['exact']:.1%}")
                if part == "read":
                    row.append(f"{found['characters']:.1%}")
            rows.append(row)
    head = ["nano", "lines exact", "characters", "colour", "shape"]
    return f"{result['count']} held-out pictures.\n\n{table(head, rows)}"
