"""Hardware, versions and commit of a measurement. Part of every result file."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from qwink.engine.threads import physical_cores
from qwink.native.processor import features

PACKAGES = ("qwink", "onnxruntime", "numpy")


@dataclass(frozen=True, slots=True)
class Hardware:
    """The machine. `accelerator` is the name of the GPU that computed; None for the CPU."""

    cpu: str
    features: tuple[str, ...]
    num_cpus: int  # that this process may use
    num_cores: int  # physical ones among them
    memory_bytes: int
    system: str
    accelerator: str | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """Hardware, versions and commit of a result.

    `commit` is None outside of a checkout; `modified`: with uncommitted changes.
    """

    hardware: Hardware
    versions: dict[str, str]
    commit: str | None
    modified: bool
    date: str  # UTC, as 2026-11-30


def collect(packages: Sequence[str] = PACKAGES, accelerator: str | None = None) -> Facts:
    """The facts of this machine and process. A package that is not installed is left out."""
    commit = _git("rev-parse", "HEAD")
    return Facts(
        Hardware(
            _cpu_name(),
            features(),
            len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else _all_cpus(),
            physical_cores(),
            _memory_bytes(),
            platform.platform(),
            accelerator,
        ),
        {name: found for name in packages if (found := _version(name))},
        commit,
        bool(commit and _git("status", "--porcelain", "--untracked-files=no")),
        datetime.now(UTC).strftime("%Y-%m-%d"),
    )


def rss_bytes() -> int:
    """Resident set size of this process now; 0 if the system does not report it."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def peak_rss_bytes() -> int:
    """Peak resident set size of this process; 0 if the system does not report it."""
    try:
        # On Linux, getrusage starts with the peak of the process that forked this one.
        status = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        pass
    try:
        import resource
    except ImportError:  # not a Unix
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if platform.system() == "Darwin" else peak * 1024


def _cpuinfo(key: str) -> str:
    """The first value of a key in /proc/cpuinfo; empty if there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    pairs = (line.partition(":") for line in lines)
    return next((value.strip() for name, _, value in pairs if name.strip() == key), "")


def _cpu_name() -> str:
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def _all_cpus() -> int:
    return os.cpu_count() or 1


def _memory_bytes() -> int:
    names = getattr(os, "sysconf_names", {})
    if "SC_PHYS_PAGES" not in names:
        return 0
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git(*arguments: str) -> str | None:
    """The output of a git command in this file's checkout; None without git or checkout."""
    folder = Path(__file__).parent
    try:
        # `ls-files` fails for a copy installed inside another project's repository.
        for command in (("ls-files", "--error-unmatch", __file__), arguments):
            ran = subprocess.run(
                ["git", *command], cwd=folder, capture_output=True, text=True, check=True
            )
    except (OSError, subprocess.CalledProcessError):
        return None
    return ran.stdout.strip()
