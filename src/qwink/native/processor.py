"""Instruction sets of this processor, as Linux names them."""

from __future__ import annotations

import platform
from pathlib import Path

# Those that the products of a quantised model use; /proc/cpuinfo has a hundred more.
FEATURES = (
    *("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8", "amx_bf16"),
    *("asimddp", "i8mm", "bf16", "sve"),
)
CPUINFO = Path("/proc/cpuinfo")
X86_64 = ("x86_64", "AMD64")
ARM64 = ("aarch64", "arm64", "ARM64")


def is_x86_64() -> bool:
    """Whether this is a 64-bit x86 processor."""
    return platform.machine() in X86_64


def is_arm64() -> bool:
    """Whether this is a 64-bit ARM processor."""
    return platform.machine() in ARM64


def flags() -> frozenset[str]:
    """All features that the system names for this processor; none where it does not say."""
    try:
        lines = CPUINFO.read_text("utf-8").splitlines()
    except OSError:
        return frozenset()
    pairs = (line.partition(":") for line in lines)
    names = ("flags", "Features")  # on x86 and on ARM
    return frozenset(next((value for name, _, value in pairs if name.strip() in names), "").split())


def features() -> tuple[str, ...]:
    """Those of FEATURES that this processor has; none where the system does not say."""
    found = flags()
    return tuple(feature for feature in FEATURES if feature in found)


def has_vnni() -> bool:
    """Whether this processor adds up products of bytes in 32 bits at once."""
    return bool({"avx512_vnni", "avx_vnni"} & set(features()))
