"""The emulator of AVX-512 and AMX, against instructions that this processor has."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.native.emulation import build as emulation
from tests.native.nodes import supported

pytestmark = pytest.mark.skipif(emulation.why_not() is not None, reason=str(emulation.why_not()))


def test_emulated_intrinsics_equal_those_of_avx2(tmp_path: Path) -> None:
    program = emulation.build_selftest(tmp_path)
    result = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (result.stdout, result.stderr, result.returncode) == ("", "", 0)


def test_every_intrinsic_of_the_kernels_is_emulated() -> None:
    assert emulation.missing_intrinsics() == set()


def test_an_intrinsic_that_is_not_emulated_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "kernel.c"
    source.write_text("x = _mm512_unheard_of(y); z = _mm256_maskload_ps(p, m); _tile_zero(0);")
    monkeypatch.setattr(emulation, "NATIVE", tmp_path)
    with pytest.raises(RuntimeError, match=r"define in .*: emu_mm512_unheard_of$"):
        emulation.build(tmp_path)


def test_the_emulated_library_runs_every_set_of_kernels(emulated_library: Path) -> None:
    dispatch = (emulation.NATIVE / "dispatch.c").read_text()
    listed = [name for name in re.findall(r"&kernels_(\w+)", dispatch) if name != "neon"]
    assert {"amx", "avx512"} <= set(listed)
    assert supported(emulated_library) == listed


def test_the_emulated_library_has_no_instruction_beyond_avx2(emulated_library: Path) -> None:
    """AMX's intrinsics are inline assembly in GCC 12, which compiles for any processor."""
    disassembler = ["objdump", "-d", "--no-show-raw-insn", str(emulated_library)]
    try:
        result = subprocess.run(disassembler, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        pytest.skip("no objdump")
    beyond = [
        line
        for line in result.stdout.splitlines()
        if any(word in line for word in ("%zmm", "%tmm", "{%k", "vpdpbusd", "tilerelease"))
    ]
    assert beyond == []
