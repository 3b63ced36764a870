"""One budget of memory, divided among all that grows with use.

The weights are not part of it: they have a fixed size.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from qwink.errors import OptionError

LARGEST_DEFAULT = 4 << 30


@dataclass(frozen=True, slots=True)
class Memory:
    """Most bytes of each kind. The weights are not part of it.

    `Memory.divide(total_bytes)` divides a total, `Memory.default()` a quarter of this machine's
    memory, 4 GiB at most.
    """

    kv_bytes: int
    """Keys and values, of answers under way and of prompts that are kept."""
    image_bytes: int
    """Encoded images."""
    upload_bytes: int = 0
    """Pictures that clients of a server uploaded."""

    @property
    def total_bytes(self) -> int:
        """The sum."""
        return self.kv_bytes + self.image_bytes + self.upload_bytes

    @classmethod
    def divide(cls, total_bytes: int) -> Memory:
        """Three quarters for keys and values, an eighth each for encoded images and uploads."""
        if total_bytes <= 0:
            raise OptionError(f"the memory budget is {total_bytes} bytes; it must be above 0")
        share = total_bytes // 8
        return cls(total_bytes - 2 * share, share, share)

    def without_images(self) -> Memory:
        """The same, but no encoded image is kept."""
        return replace(self, image_bytes=0)

    @classmethod
    def default(cls) -> Memory:
        """A quarter of this machine's memory, 4 GiB at most."""
        return cls.divide(min(machine_bytes() // 4, LARGEST_DEFAULT))


def machine_bytes(cgroup: Path = Path("/sys/fs/cgroup/memory.max")) -> int:
    """The machine's memory, or the cgroup's limit where that is less; 8 GiB if unknown."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not a Unix
        total = 8 << 30
    try:
        return min(total, int(cgroup.read_text()))
    except (OSError, ValueError):  # no cgroup of version 2, or "max"
        return total
