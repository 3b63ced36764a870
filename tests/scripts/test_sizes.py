"""The numbers of lines in docs/architecture.md."""

from __future__ import annotations

from pathlib import Path

from scripts.make_tables import is_current
from scripts.tables.sizes import count, sizes


def test_lines_are_counted_by_what_they_are_for(tmp_path: Path) -> None:
    for name, lines in {
        "src/qwink/engine/onnx.py": 3,
        "src/qwink/cli/ask.py": 2,
        "src/qwink/native/product.c": 7,
        "src/qwink/native/kernels.h": 4,
        "src/qwink/lab/load/client.py": 5,
        "src/qwink/cli/bench/load.py": 1,
        "src/qwink/cli/verify.py": 1,
        "src/qwink/assets/nano/config.json": 9,
        "benchmarks/nano.py": 6,
        "scripts/tables/guide.py": 2,
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n" * lines)
    assert count(tmp_path) == {"answers": 5, "kernels": 11, "measures": 7, "tools": 8}


def test_numbers_of_lines_may_differ_by_five_percent() -> None:
    page = "{} of Python, {} of C in 3 parts".format
    assert is_current(page("14,000", "1,900"), page("14,600", "1,900"), tolerance=0.05)
    assert not is_current(page("14,000", "1,900"), page("14,800", "1,900"), tolerance=0.05)
    assert not is_current(page("14,000", "1,900"), page("14,000", "2,100"), tolerance=0.05)
    assert not is_current("3 parts", "3 pieces", tolerance=0.05)
    assert is_current("3 parts", "3 parts")
    assert not is_current(page("14,000", "1,900"), page("14,001", "1,900"))


def test_the_table_names_all_parts() -> None:
    page = sizes(None)  # type: ignore[arg-type]
    assert "This answers" in page
    assert "This measures" in page
