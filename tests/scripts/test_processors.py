"""Figures of each kind of processor on the page and in the README."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.performance import processors
from scripts.performance.layout import Results
from scripts.tables import readme
from tests.scripts.test_peers import result

MISSING = "this processor lacks avx_vnni"


@pytest.fixture
def results(tmp_path: Path) -> Results:
    measured = result()
    for table in (measured["contenders"], measured["times_faster"]["fast"]):
        table["llama.cpp-Q4_0"] = table.pop("other")
    document: dict[str, Any] = {"kind": "processors", "facts": measured["facts"]}
    document["processors"] = {"avxvnni": {"not_measured": MISSING}, "avx2": measured}
    (tmp_path / "processors.json").write_text(json.dumps(document))
    return Results(tmp_path)


def test_the_page_shows_each_kind_or_why_not(results: Results) -> None:
    section = processors.section(results)
    assert section is not None
    assert section.text.index("### AVX2\n") < section.text.index("### AVX-VNNI\n")
    assert f"Not measured: {MISSING}.\n" in section.text
    assert "| `llama.cpp-Q4_0` | **3.00** (3.00–3.00) | **1.50** (1.50–1.50) | — |" in section.text
    assert "- `third` is absent: no compiler" in section.text
    assert "AVX-512" not in section.text


def test_the_readme_shows_what_was_measured(results: Results) -> None:
    row = "| AVX2 | llama.cpp, Q4_0 | 3.00 s, **3×** | 60 ms, **1.5×** |"
    assert row in readme.ENGLISH.processors(results)
    assert row in readme.CHINESE.processors(results)
    assert "for want of such a processor: AVX-VNNI." in readme.ENGLISH.processors(results)
    assert "（没有相应的处理器）：AVX-VNNI。" in readme.CHINESE.processors(results)


def test_nothing_without_results(tmp_path: Path) -> None:
    assert processors.section(Results(tmp_path)) is None
    assert readme.ENGLISH.processors(Results(tmp_path)) == ""
