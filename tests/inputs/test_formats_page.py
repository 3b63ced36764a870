"""docs/formats.md lists what the code reads, on each way into it."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from qwink.inputs.files import MAX_FILE_BYTES
from qwink.inputs.formats import SUFFIXES, SUPPORTED_FORMATS
from qwink.inputs.images import MAX_IMAGE_PIXELS
from qwink.server.options import ServerOptions
from tests.conftest import RunQwink
from tests.inputs.pictures import SAMPLES, read, sample

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "formats.md").read_text("utf-8")
ROWS = {
    cells[0]: cells[1:]
    for line in re.findall(r"^\| (.*) \|$", PAGE, re.MULTILINE)
    if (cells := line.split(" | "))[0] in SUPPORTED_FORMATS
}


def test_all_formats_are_listed_in_order() -> None:
    assert tuple(ROWS) == SUPPORTED_FORMATS == tuple(SUFFIXES)


@pytest.mark.parametrize("kind", SUPPORTED_FORMATS)
def test_names_of_files(kind: str) -> None:
    assert tuple(re.findall(r"`(\.\w+)`", ROWS[kind][0])) == SUFFIXES[kind]


@pytest.mark.parametrize("kind", SUPPORTED_FORMATS)
def test_what_is_read_needs_what_the_page_says(kind: str) -> None:
    assert ROWS[kind][1] == ("yes" if kind in SAMPLES else "with `pip install pillow-heif`")
    if kind in SAMPLES or find_spec("pillow_heif"):
        assert read(sample(kind)).size == (48, 32)


def test_the_command_line_reads_all(qwink: RunQwink, tmp_path: Path) -> None:
    """In one question, named without suffixes."""
    kinds = [*SAMPLES, *(["HEIC"] if find_spec("pillow_heif") else [])]
    for kind in kinds:
        (tmp_path / kind).write_bytes(sample(kind))
    paths = [tmp_path / kind for kind in kinds]
    ran = qwink("ask", *paths, "-q", "?", "--max-pixels", 4096, "--max-tokens", 1, "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["usage"]["image_tokens"] >= len(kinds)


def test_what_the_browser_sends_unchanged() -> None:
    script = ROOT / "src" / "qwink" / "server" / "static" / "images.js"
    (listed,) = re.findall(r"SENT_AS_IS = \[(.*?)\]", script.read_text("utf-8"), re.DOTALL)
    sent = set(re.findall(r"image/(\w+)", listed))
    assert sent == {kind.lower() for kind, cells in ROWS.items() if cells[2] == "yes"}


def test_limits() -> None:
    options = ServerOptions()
    assert f"{MAX_FILE_BYTES >> 30} GiB" in PAGE
    assert f"{MAX_IMAGE_PIXELS // 10**6} megapixels" in PAGE
    assert f"| {options.max_body_mb} MiB |" in PAGE
    assert f"| {options.max_images} |" in PAGE
