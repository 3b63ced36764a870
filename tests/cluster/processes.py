"""The processes of a Ray that a server started: found below its own, in /proc."""

from __future__ import annotations

from pathlib import Path

from tests.server.process import Server


def replicas_of(server: Server) -> list[int]:
    """The process ids of its replicas."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
    return sorted(
        process
        for process in parents
        if server.process.pid in ancestors(process, parents)
        and title(process).startswith("ray::ServeReplica:qwink:replicas")
    )


def ancestors(process: int, parents: dict[int, int]) -> list[int]:
    found = []
    while process in parents:
        process = parents[process]
        found.append(process)
    return found


def title(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text().split("\0")[0]
    except OSError:
        return ""
