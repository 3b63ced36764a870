"""Answers about pages in strips, compared with those about the whole pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from qwink.errors import ImageError
from qwink.lab.verify.samples import Sample
from qwink.runtime.vlm import VLM


@dataclass(frozen=True, slots=True)
class PageComparison:
    """One page. `alike`: the share of characters that both answers have in order, 0 to 1.

    `note` says how the page was cut, or why it was not; `error` why it could not be used.
    """

    name: str
    whole: str = ""
    in_strips: str = ""
    alike: float = 0.0
    whole_ms: float = 0.0
    strips_ms: float = 0.0
    note: str = ""
    error: str | None = None


def compare_strips(
    vlm: VLM,
    samples: Sequence[Sample],
    strips: int,
    max_tokens: int,
    report: Callable[[int, int], None] = lambda *_: None,
) -> list[PageComparison]:
    """Read each picture as a whole and in strips, both greedily. Encoded images are not reused,
    since the parts differ."""
    found = []
    for number, sample in enumerate(samples):
        try:
            found.append(_compare(vlm, sample, strips, max_tokens))
        except ImageError as error:
            found.append(PageComparison(sample.name, error=str(error)))
        report(number + 1, len(samples))
    return found


def _compare(vlm: VLM, sample: Sample, strips: int, max_tokens: int) -> PageComparison:
    question = "Read all the text in the picture."
    whole, cut = (
        vlm.ask(sample.image, question, task="ocr", strips=how, max_tokens=max_tokens)
        for how in ("off", strips)
    )
    alike = SequenceMatcher(None, whole.text, cut.text, autojunk=False).ratio()
    notes = [note for note in cut.timings.notes if note.startswith("strips:")]
    return PageComparison(
        sample.name,
        whole.text,
        cut.text,
        round(alike, 4),
        round(whole.timings.total_ms, 1),
        round(cut.timings.total_ms, 1),
        notes[0] if notes else "",
    )
