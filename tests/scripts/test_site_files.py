"""The documentation builds as a site, without a network, and broken links stop the build."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.site_files import PAGES, ROOT

BUILD = """\
import socket

def refuse(*_):
    raise OSError("the build opened a connection")

socket.getaddrinfo = socket.socket.connect = refuse
from mkdocs.__main__ import cli
cli()
"""


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BUILD, "build", "--site-dir", str(site)],
        cwd=root,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = build(ROOT, folder)
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_is_on_the_site(site: Path) -> None:
    pages = [*PAGES, *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
    for page in pages:
        name = re.sub(r"(^|/)README$", r"\1", page.removesuffix(".md"))
        assert (site / name / "index.html").is_file(), page


def test_a_reader_loads_nothing_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        text = path.read_text("utf-8")
        loaded = re.findall(r"<(?:script|img|iframe)[^>]*\ssrc=\"?([^\"\s>]+)", text)
        loaded += re.findall(r"<link[^>]*\shref=\"?([^\"\s>]+)", text)
        assert loaded
        assert [url for url in loaded if re.match(r"(\w+:)?//", url)] == [], path


def test_a_broken_link_stops_the_build(tmp_path: Path) -> None:
    for name in ("docs", "mkdocs.yml", "scripts/site_files.py", *PAGES):
        target = tmp_path / "root" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, target)
    with (tmp_path / "root/docs/pull.md").open("a", encoding="utf-8") as page:
        page.write("\n[a](nowhere.md) [b](pull.md#nowhere) [c](/docs/pull.md)\n")
    built = build(tmp_path / "root", tmp_path / "site")
    assert built.returncode != 0
    for link in ("'nowhere.md'", "'pull.md#nowhere'", "'/docs/pull.md'"):
        assert link in built.stderr
