"""A PDF of many pages, each asked about apart: time, memory, and the same again from the cache.

    python -m qwink.lab.pdf [MODEL] [--pages 20]

The pages are drawn texts. Memory is that of the process, before, in the middle and at the end.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import PIL.Image

from qwink.batches.batch import batch
from qwink.cache.disk import DiskStore
from qwink.lab.pictures.pages import pages
from qwink.lab.record import RESULTS, record, write
from qwink.runtime.models import load
from qwink.runtime.vlm import VLM

QUESTION = "What does it say?"
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Run:
    """All pages, once."""

    seconds: float
    characters: int
    errors: int
    encode_ms: float  # of all pages together
    rss_mib: tuple[int, int, int]  # after the first page, the middle one and the last


def draw(num_pages: int) -> bytes:
    """A PDF of invoices, tables and columns."""
    drawn: list[PIL.Image.Image] = []
    while len(drawn) < num_pages:
        for kind in ("invoice", "two columns", "table", "receipt"):
            drawn += [page.image for page in pages(kind)]
    file = io.BytesIO()
    drawn[0].save(file, "PDF", save_all=True, append_images=drawn[1:num_pages])
    return file.getvalue()


def rss_mib() -> int:
    """The resident set of this process."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096 // _MIB


def run(vlm: VLM, path: Path) -> Run:
    """Ask about every page."""
    begin, memory, characters, errors, encode_ms = time.perf_counter(), [], 0, 0, 0.0
    for row in batch(path, QUESTION, model=vlm):
        memory.append(rss_mib())
        characters += len(row.answer or "")
        errors += row.error is not None
        encode_ms += (row.timings or {}).get("encode_ms", 0.0)
    seconds = time.perf_counter() - begin
    print(f"{len(memory)} pages in {seconds:.1f} s", file=sys.stderr, flush=True)
    middle = memory[len(memory) // 2]
    return Run(round(seconds, 3), characters, errors, encode_ms, (memory[0], middle, memory[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", nargs="?", default="nano")
    parser.add_argument("--pages", type=int, default=20)
    parser.add_argument("--out", type=Path, default=RESULTS / "pdf.json")
    args = parser.parse_args()
    measured: dict[str, Any] = {"model": args.model, "pages": args.pages}
    with tempfile.TemporaryDirectory(prefix="qwink-pdf-") as folder:
        path = Path(folder, "pages.pdf")
        path.write_bytes(draw(args.pages))
        measured["bytes"] = path.stat().st_size
        for name in ("first", "second"):  # the second finds encoded images on disk
            store = DiskStore(Path(folder, "store"), 1 << 30)
            with load(args.model, store=store) as vlm:
                found = run(vlm, path)
            measured[name] = {field: getattr(found, field) for field in Run.__slots__}
    write(args.out, record("pdf", measured).document())
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
