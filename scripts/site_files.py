"""A hook of MkDocs (mkdocs.yml): the site has the layout of the repository.

MkDocs reads one folder of pages, but README.md and the other pages outside docs/ belong to the site
too. With equal layouts the same relative links work in the repository and on the site.
"""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
# Besides all of docs/.
PAGES = (
    "README.md",
    "README.zh.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "benchmarks/peers/README.md",
    "training/nano/README.md",
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Put docs/ below the root, beside the other pages. The theme's files stay."""
    theme = [file for file in files if file.src_dir != config.docs_dir]
    sources = [ROOT / page for page in PAGES]
    sources += sorted(path for path in (ROOT / "docs").rglob("*") if path.is_file())
    pages = [
        File(
            path.relative_to(ROOT).as_posix(),
            str(ROOT),
            config.site_dir,
            config.use_directory_urls,
        )
        for path in sources
    ]
    return Files([*theme, *pages])
