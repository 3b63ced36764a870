"""The number of threads to compute with: the physical cores that this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path


def physical_cores(cpus: Path = Path("/sys/devices/system/cpu")) -> int:
    """Physical cores among the allowed CPUs, limited by a cgroup's quota.

    Two hyper-threads share one set of vector units, so that a second thread gains nothing.
    Where the topology is not known, every allowed CPU counts.
    """
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    if allowed is None:
        return max(1, (os.cpu_count() or 2) // 2)
    cores = {_siblings(cpus, cpu) for cpu in allowed}
    return max(1, min(len(cores), _quota()))


def _siblings(cpus: Path, cpu: int) -> str:
    try:
        return (cpus / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def _quota(path: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """CPUs that the cgroup (version 2) grants, rounded up; a large number without a limit."""
    try:
        quota, period = path.read_text().split()
        return math.ceil(int(quota) / int(period))
    except (OSError, ValueError):  # no such file, or "max"
        return 1 << 16
