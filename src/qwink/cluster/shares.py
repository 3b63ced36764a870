"""How many threads and how much memory each replica gets, where several share a machine."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from qwink.server.options import ServerOptions

_MOST_MB = 4096  # as for one server


def share(
    options: ServerOptions, num_replicas: int, num_machines: int, num_cores: int, memory_mb: int
) -> ServerOptions:
    """The options with `threads` and `memory_mb`, where they are not given.

    `num_cores` and `memory_mb` are those of the smallest machine. Its cores are divided among its
    replicas, and a quarter of its memory.
    """
    each = ceil(num_replicas / num_machines)
    threads = options.threads or max(1, num_cores // each)
    memory = options.memory_mb or max(1, min(_MOST_MB, memory_mb // 4 // each))
    return replace(options, threads=threads, memory_mb=memory)
