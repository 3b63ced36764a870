"""The documentation agrees with the code."""

import re
import subprocess
import sys
from pathlib import Path

import qwink

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "qwink"


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def test_architecture_names_every_module() -> None:
    page = read("docs/architecture.md")
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE).with_suffix("").as_posix()
        if path.stem.startswith("_"):
            continue
        names = [module, *(f"{folder.as_posix()}/*" for folder in Path(module).parents)]
        assert any(f"`{name}`" in page for name in names), f"docs/architecture.md lacks {module}"


def test_architecture_names_only_modules_that_exist() -> None:
    for module in re.findall(r"^\| `([a-z_/]+)` \|", read("docs/architecture.md"), re.MULTILINE):
        assert (PACKAGE / f"{module}.py").is_file() or (PACKAGE / module).is_dir(), module


def test_link_targets_exist() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_changelog_has_a_section_for_this_version() -> None:
    released = "dev" not in qwink.__version__
    heading = f"## {qwink.__version__}" if released else "## Unreleased"
    assert heading in read("CHANGELOG.md")


def test_performance_page_is_current() -> None:
    command = [sys.executable, "-m", "scripts.make_performance", "--check"]
    subprocess.run(command, cwd=ROOT, check=True)


def test_tables_are_current() -> None:
    subprocess.run([sys.executable, "-m", "scripts.make_tables", "--check"], cwd=ROOT, check=True)
