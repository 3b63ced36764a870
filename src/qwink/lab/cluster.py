"""`qwink serve --ray local` with two replicas: pictures found again, a killed replica, an update.

    python -m qwink.lab.cluster [--model nano] [--pictures 100]

Second questions are asked after all first ones, in another order. A question finds its picture if
the replica that answers has it encoded.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from qwink.lab.pictures.sample import as_jpeg, clouds
from qwink.lab.process import ServerProcess
from qwink.lab.record import RESULTS, record, write
from qwink.settings import environment

SIDE = 448  # pixels
REPLICAS = 2
_QUESTIONS = ("What is shown?", "Which colours are there?")
_PATIENCE_S = 120.0
_SETTLE = 30  # answers before something happens, and after it
_PAIRS = 60


@dataclass(frozen=True, slots=True)
class Found:
    """How many second questions found their picture, and how long they took in all."""

    questions: int
    found: int
    share: float
    median_ms: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Disturbed:
    """What became of requests while something happened, by outcome: ok, or status and code."""

    outcomes: dict[str, int]
    seconds: float  # until two replicas answered again


@dataclass(frozen=True, slots=True)
class Measured:
    model: str
    replicas: int
    users: int
    pictures: int
    with_routing: Found
    without_routing: Found
    killed: Disturbed
    updated: Disturbed
    alone_ms: float  # median of short answers of qwink serve
    through_ray_ms: float  # and through the front, in turns with those


async def measure(model: str, pictures: int, users: int) -> Measured:
    """Start servers and ask. Raises QwinkError if they do not start."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with _serving(model, folder, "load") as (server, _):
            without = await _ask_twice(server.address, model, pictures, users)
        async with _serving(model, folder, "picture") as (server, printed):
            found = await _ask_twice(server.address, model, pictures, users)
            alone, through = await _pairs(server.address, model, folder)
            killed = await _kill(server, model, users)
            updated = await _update(server, model, users, printed, folder)
    return Measured(
        model, REPLICAS, users, pictures, found, without, killed, updated, alone, through
    )


@asynccontextmanager
async def _serving(
    model: str, folder: Path, routing: str
) -> AsyncIterator[tuple[ServerProcess, Path]]:
    """A server, and the folder of what it prints."""
    place = folder / routing
    place.mkdir()
    arguments = ["--ray", "local", "--replicas", str(REPLICAS), "--ray-routing", routing]
    server = ServerProcess([*arguments, *_flags(model)], place)
    try:
        await server.start()
        async with _client(server.address) as http:
            await _until_all_answer(http)
            yield server, place
        await server.end(signal.SIGTERM)
    finally:
        server.kill()


def _flags(model: str) -> list[str]:
    return ["--model", model, "--threads", "1", "--no-disk-cache"]


def _client(address: str) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(base_url=address, timeout=_PATIENCE_S, trust_env=False, limits=limits)


async def _until_all_answer(http: httpx.AsyncClient) -> None:
    while (await http.get("/metrics")).text.count("qwink_engine_up{") != REPLICAS:
        await asyncio.sleep(0.1)


def _request(model: str, picture: int, question: str, **fields: Any) -> dict[str, Any]:
    content = base64.b64encode(as_jpeg(clouds(picture, SIDE))).decode()
    parts = [
        {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{content}"}},
        {"type": "text", "text": question},
    ]
    return {
        "model": model,
        "messages": [{"role": "user", "content": parts}],
        "max_tokens": 16,
        "temperature": 0,
    } | fields


async def _ask_twice(address: str, model: str, pictures: int, users: int) -> Found:
    times: list[float] = []
    found = 0

    async def ask(requests: Iterator[dict[str, Any]], http: httpx.AsyncClient) -> None:
        nonlocal found
        for request in requests:
            began = time.perf_counter()
            response = await http.post("/v1/chat/completions", json=request)
            times.append((time.perf_counter() - began) * 1e3)
            origins = response.raise_for_status().json()["timings"]["origins"]
            found += origins["encode"] != "computed"

    order = list(range(pictures))
    async with _client(address) as http:
        for question in _QUESTIONS:
            times, found, began = [], 0, time.perf_counter()
            requests = iter([_request(model, picture, question) for picture in order])
            await asyncio.gather(*(ask(requests, http) for _ in range(users)))
            random.Random(0).shuffle(order)
    seconds = round(time.perf_counter() - began, 2)
    return Found(pictures, found, round(found / pictures, 3), round(median(times), 1), seconds)


async def _pairs(address: str, model: str, folder: Path) -> tuple[float, float]:
    """Medians of short answers in ms, of a server without Ray and of this one, in turns."""
    place = folder / "alone"
    place.mkdir()
    alone = ServerProcess(_flags(model), place)
    times: tuple[list[float], list[float]] = ([], [])
    try:
        await alone.start()
        async with _client(alone.address) as one, _client(address) as other:
            turns = [{"role": "user", "content": "Hi"}]
            text = {"model": model, "messages": turns, "max_tokens": 4}
            for _ in range(_PAIRS):
                for http, taken in zip((one, other), times, strict=True):
                    began = time.perf_counter()
                    response = await http.post(
                        "/v1/chat/completions", json={"model": model, **text}
                    )
                    response.raise_for_status()
                    taken.append((time.perf_counter() - began) * 1e3)
        await alone.end(signal.SIGTERM)
    finally:
        alone.kill()
    return round(median(times[0]), 2), round(median(times[1]), 2)


class _Load:
    """Users who ask without end, half of them for streams."""

    def __init__(self, http: httpx.AsyncClient, model: str, users: int) -> None:
        self._http, self._model = http, model
        self.outcomes: Counter[str] = Counter()
        self._tasks = [asyncio.create_task(self._ask_on(user)) for user in range(users)]

    async def _ask_on(self, user: int) -> None:
        number = user * 1000
        while True:
            number += 1
            request = _request(self._model, number // 2, _QUESTIONS[0], stream=number % 2 == 0)
            self.outcomes[await self._outcome(request)] += 1

    async def _outcome(self, request: dict[str, Any]) -> str:
        try:
            response = await self._http.post("/v1/chat/completions", json=request)
        except httpx.HTTPError as error:
            return type(error).__name__
        if response.status_code != 200:
            return f"{response.status_code} {response.json()['error']['code']}"
        if not request["stream"]:
            return "ok"
        failed = re.search(r'data: {"error".*"code": ?"(\w+)"', response.text)
        if failed:
            return f"stream {failed[1]}"
        return "ok" if response.text.endswith("data: [DONE]\n\n") else "stream cut"

    async def settle(self) -> None:
        wanted = self.outcomes["ok"] + _SETTLE
        while self.outcomes["ok"] < wanted:
            await asyncio.sleep(0.02)

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _kill(server: ServerProcess, model: str, users: int) -> Disturbed:
    async with _client(server.address) as http:
        load = _Load(http, model, users)
        await load.settle()
        began = time.monotonic()
        os.kill(replica_processes(server.pid)[0], signal.SIGKILL)
        await asyncio.sleep(1)
        await _until_all_answer(http)
        seconds = round(time.monotonic() - began, 1)
        await load.settle()
        await load.end()
    return Disturbed(dict(load.outcomes), seconds)


async def _update(
    server: ServerProcess, model: str, users: int, printed: Path, folder: Path
) -> Disturbed:
    """The same application with another option: all replicas are replaced."""
    found = re.search(r"--ray (\S+)", next(printed.glob("*.out")).read_text())
    assert found is not None
    before = set(replica_processes(server.pid))
    async with _client(server.address) as http:
        load = _Load(http, model, users)
        await load.settle()
        began = time.monotonic()
        command = ["--ray", found[1], "--replicas", str(REPLICAS), "--max-waiting", "63"]
        update = await _start(["serve", *command, *_flags(model)], folder / "update.log")
        try:
            while before & set(replica_processes(server.pid)):
                await asyncio.sleep(0.2)
            await _until_all_answer(http)
            seconds = round(time.monotonic() - began, 1)
            await load.settle()
            await load.end()
        finally:
            update.kill()
            await update.wait()
    return Disturbed(dict(load.outcomes), seconds)


async def _start(arguments: Sequence[str], log: Path) -> asyncio.subprocess.Process:
    with log.open("wb") as errors:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "qwink", *arguments),
            env={**environment(), "RAY_AUTH_MODE": "token"},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=errors,
        )


def replica_processes(server: int) -> list[int]:
    """The process ids of the replicas of a local server with process id `server`. Linux only."""
    parents: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
    return sorted(
        process
        for process in parents
        if server in _ancestors(process, parents)
        and _title(process).startswith("ray::ServeReplica:qwink:replicas")
    )


def _ancestors(process: int, parents: dict[int, int]) -> list[int]:
    found = []
    while process in parents:
        process = parents[process]
        found.append(process)
    return found


def _title(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text().split("\0")[0]
    except OSError:
        return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="nano")
    parser.add_argument("--pictures", type=int, default=100)
    parser.add_argument("--users", type=int, default=4)
    parser.add_argument("--out", type=Path, default=RESULTS / "cluster.json")
    given = parser.parse_args()
    measured = asyncio.run(measure(given.model, given.pictures, given.users))
    write(given.out, record("cluster", measured).document())
    print(json.dumps(asdict(measured), indent=2))


if __name__ == "__main__":
    main()
