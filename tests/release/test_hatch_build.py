"""What a build does with and without a compiler, from source and for a release."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Any

import pytest

from hatch_build import FOLDER, PLATFORM, CustomBuildHook

# A compiler that writes its arguments in place of a library, and import libraries beside it.
COMPILER = """
import pathlib, sys
out = pathlib.Path(sys.argv[sys.argv.index("-o") + 1])
out.write_text(" ".join(sys.argv))
out.with_name("attention.lib").touch()
"""
BROKEN = "import sys; sys.exit('kernel.c:1: error: no such intrinsic')"


class App:
    """Hatch, as far as the hook talks to it."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def display_warning(self, text: str) -> None:
        self.warnings.append(text)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / FOLDER).mkdir(parents=True)
    (tmp_path / FOLDER / "kernel.c").touch()
    monkeypatch.delenv(PLATFORM, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    return tmp_path


def use(monkeypatch: pytest.MonkeyPatch, root: Path, program: str) -> None:
    (root / "compiler.py").write_text(program)
    monkeypatch.setenv("CC", f"{sys.executable} '{root}/compiler.py'")


def build(root: Path) -> tuple[dict[str, Any], list[str]]:
    """What the hook says of the wheel, and its warnings."""
    app: Any = App()
    metadata: Any = None
    hook = CustomBuildHook(str(root), {}, metadata, metadata, str(root), "wheel", app)
    data: dict[str, Any] = {"artifacts": []}
    hook.initialize("standard", data)
    return data, app.warnings


def libraries(root: Path) -> list[str]:
    return sorted(path.name for path in (root / FOLDER).iterdir() if path.suffix != ".c")


def test_without_a_compiler_the_wheel_is_made_without_kernels(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    (root / FOLDER / "_kernels.so").touch()  # from before
    data, warnings = build(root)
    assert data == {"artifacts": []}
    assert warnings == ["no C compiler: qwink uses ONNX Runtime's operators alone"]
    assert libraries(root) == []


def test_what_does_not_compile_is_a_warning_from_source_and_an_error_for_a_release(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, root, BROKEN)
    data, warnings = build(root)
    assert data == {"artifacts": []}
    assert "no such intrinsic" in warnings[0]
    monkeypatch.setenv(PLATFORM, "win_amd64")
    with pytest.raises(SystemExit, match=r"do not compile for win_amd64:\n.*no such intrinsic"):
        build(root)
    assert libraries(root) == []


def test_from_source_the_kernels_are_compiled_for_this_machine(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, root, COMPILER)
    data, warnings = build(root)
    assert warnings == []
    assert data["artifacts"] == [f"{FOLDER}/_kernels.so"]
    assert data["tag"].startswith("py3-none-")
    assert "kernel.c" in (root / FOLDER / "_kernels.so").read_text()
    assert libraries(root) == ["_kernels.so"]


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ("manylinux_2_28_aarch64", "_kernels.so"),
        ("win_amd64", "_kernels.dll"),
        ("macosx_11_0_arm64", "_kernels.dylib"),
    ],
)
def test_for_a_release_the_platform_is_named(
    root: Path, monkeypatch: pytest.MonkeyPatch, tag: str, name: str
) -> None:
    """On any system, also on one for which nothing is compiled from source."""
    use(monkeypatch, root, COMPILER)
    monkeypatch.setenv(PLATFORM, tag)
    monkeypatch.setattr(sys, "platform", "freebsd")
    data, _ = build(root)
    assert data["tag"] == f"py3-none-{tag}"
    assert data["pure_python"] is False
    assert data["artifacts"] == [f"{FOLDER}/{name}"]
    assert libraries(root) == [name]


def test_elsewhere_nothing_is_compiled_from_source(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, root, COMPILER)
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert build(root) == ({"artifacts": []}, [])
