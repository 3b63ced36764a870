"""qwink and other engines on each kind of processor."""

from __future__ import annotations

from qwink.lab.peers.cap import CPUS
from qwink.lab.peers.processors import NOT_MEASURED
from scripts.performance import peers
from scripts.performance.layout import Document, Results, Section

SHOWN = {"avx2": "AVX2", "avxvnni": "AVX-VNNI", "avx512": "AVX-512 with VNNI"}
TEXT = """## On each kind of processor

By `python -m qwink.lab.peers.compare --cpu all`, in the same way: what the processor has beyond
the kind is hidden from all engines, and llama.cpp is built for it. Figures of different kinds may
come from different machines.
"""


def section(results: Results) -> Section | None:
    result = results.read("processors")
    if result is None:
        return None
    found = result["processors"]
    return Section("\n".join([TEXT, *(_kind(cpu, found[cpu]) for cpu in CPUS if cpu in found)]))


def _kind(cpu: str, found: Document) -> str:
    title = f"### {SHOWN[cpu]}\n"
    if NOT_MEASURED in found:
        return f"{title}\nNot measured: {found[NOT_MEASURED]}.\n"
    absent = [f"- `{name}` is absent: {reason}" for name, reason in found["absent"].items()]
    return "\n".join(
        [title, peers.work(found), peers.contenders(found), peers.ratios(found), *absent]
    )
