"""Which processors can compute as which, and what the library hides from programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from qwink.lab.peers import cap as module
from qwink.lab.peers.cap import (
    CPUS,
    SOURCE,
    VARIABLE,
    CannotHide,
    beyond,
    cap,
    compile_library,
    lacks,
)
from qwink.native import processor

OLD = frozenset({"sse4_2", "avx2", "fma", "f16c"})
SMALL = OLD | {"avx_vnni"}
SERVER = SMALL | {"avx512f", "avx512_vnni", "avx512_vbmi", "avx512_bf16", "amx_tile", "amx_int8"}
# Bits of leaf 7 that programs ask for: (sub-leaf, register, bit).
BITS = {
    "avx2": (0, "b", 5),
    "avx512f": (0, "b", 16),
    "avx512_vnni": (0, "c", 11),
    "amx_int8": (0, "d", 25),
    "avx_vnni": (1, "a", 4),
    "avx512_bf16": (1, "a", 5),
}
HARNESS = """
#include "%s"
int main(int count, char **cpu) {
  keep_avx512 = !strcmp(cpu[1], "avx512");
  keep_vnni = keep_avx512 || !strcmp(cpu[1], "avxvnni");
  for (uint32_t sub = 0; sub < 2; sub++) {
    uint32_t r[4] = {~0u, ~0u, ~0u, ~0u};
    hide(sub, r, r + 1, r + 2, r + 3);
    printf("%%u %%u %%u %%u\\n", r[0], r[1], r[2], r[3]);
  }
  (void)count;
}
"""


def test_a_processor_computes_as_those_that_have_no_more() -> None:
    assert [lacks(cpu, SERVER) for cpu in CPUS] == [None] * 3
    assert lacks("avx2", OLD) is None
    assert lacks("avxvnni", OLD) == "this processor lacks avx_vnni"
    assert lacks("avx512", SMALL) == (
        "this processor lacks avx512f, avx512_vnni, avx512_vbmi, avx512_bf16"
    )
    assert lacks("avx2", frozenset()) == "this processor lacks avx2, fma, f16c"


def test_only_what_is_there_is_hidden(tmp_path: Path) -> None:
    assert beyond("avx2", OLD) == beyond("avxvnni", SMALL) == []
    assert beyond("avx2", SMALL) == ["avx_vnni"]
    assert beyond("avx512", SERVER) == ["amx_int8", "amx_tile"]
    assert cap("avx2", tmp_path, OLD).variables == {}
    assert not list(tmp_path.iterdir())  # no library needed


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hide")
    source = folder / "harness.c"
    source.write_text(HARNESS % SOURCE)
    program = folder / "harness"
    subprocess.run(["cc", "-o", program, source], check=True)
    return program


@pytest.mark.parametrize(
    ("cpu", "kept"),
    [
        ("avx2", {"avx2"}),
        ("avxvnni", {"avx2", "avx_vnni"}),
        ("avx512", {"avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16"}),
    ],
)
def test_bits_of_what_a_kind_lacks_are_cleared(harness: Path, cpu: str, kept: set[str]) -> None:
    printed = subprocess.run([harness, cpu], capture_output=True, text=True, check=True).stdout
    leaves = [
        dict(zip("abcd", map(int, line.split()), strict=True)) for line in printed.split("\n")[:2]
    ]
    found = {
        name for name, (sub, register, bit) in BITS.items() if leaves[sub][register] >> bit & 1
    }
    assert found == kept


def test_hides_from_a_program_or_says_why_not(tmp_path: Path) -> None:
    library = compile_library(tmp_path)
    environment = {VARIABLE: "avx2", "LD_PRELOAD": str(library)}
    script = "from qwink import native; print(*native.capabilities().supported)"
    ran = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    if ran.returncode == 99:
        assert "does not let the CPUID instruction fault" in ran.stderr
        with pytest.raises(CannotHide, match="CPUID instruction fault"):
            cap("avx2", tmp_path, SERVER)
    else:
        assert ran.stdout.split() == ["avx2"]
        assert cap("avx2", tmp_path, SERVER).variables == environment


def test_needs_a_compiler_and_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        with pytest.raises(CannotHide, match="C compiler named cc"):
            cap("avx2", tmp_path, SERVER)
    monkeypatch.setattr(module, "SOURCE", tmp_path / "hide.c")
    with pytest.raises(CannotHide, match=r"hide\.c is part of the sources only"):
        cap("avx2", tmp_path, SERVER)


def test_flags_are_read_from_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    assert processor.flags() == frozenset()
    (tmp_path / "cpuinfo").write_text("model name\t: X\nflags\t\t: sse4_2 avx2 fma f16c\n")
    assert processor.flags() == OLD
    assert processor.features() == ("avx2",)
