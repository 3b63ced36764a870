"""llama.cpp beside `qwink bench extract`: what its grammar costs, and what its n-grams save.

    python -m qwink.lab.extract.llama SERVER MODEL [--tokens 64] [--rounds 5]

SERVER is the program llama-server, MODEL a GGUF file. Known answers cannot be replayed in
llama.cpp, and the weights may be random. So this compares times per token only: of free answers
with answers of the same length in a JSON grammar, and of both with n-gram speculation. Greedy
answers of random weights repeat one word without end, so that nearly every draft is right: the
gain is the most that the speculation can give, not what it gives for records.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from qwink.engine.threads import physical_cores
from qwink.lab.record import RESULTS, record, write
from qwink.lab.statistics import paired_ratio, summarise

PORT = 18094
WAIT_S = 120
PROMPT = "The records of the receipt as JSON:\n"
# A list without end, so that answers are as long as free ones.
GRAMMAR = r"""root ::= "[" item ("," item)*
item ::= "\"" [a-zA-Z ]+ "\"" | [0-9]+
"""
# Each way's `--spec-type`, and whether it has the grammar.
WAYS = {
    "free": ("none", False),
    "grammar": ("none", True),
    "ngrams": ("ngram-simple", False),
    "ngrams_grammar": ("ngram-simple", True),
}


class LlamaServer:
    """A llama-server with one slot."""

    def __init__(self, program: str, model: str, threads: int, spec_type: str, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}"
        self._process = subprocess.Popen(
            [
                *(program, "--model", model, "--threads", str(threads)),
                *("--threads-batch", str(threads), "--parallel", "1", "--ctx-size", "2048"),
                *("--spec-type", spec_type, "--no-webui", "--host", "127.0.0.1"),
                *("--port", str(port)),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def wait(self) -> None:
        """Until it is ready. Raises ValueError if it has ended."""
        deadline = time.monotonic() + WAIT_S
        while True:
            if self._process.poll() is not None:
                raise ValueError(f"llama-server ended with status {self._process.returncode}")
            try:
                self._call("/health")
                return
            except urllib.error.URLError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def complete(self, num_tokens: int, *, grammar: bool) -> dict[str, Any]:
        """llama.cpp's own timings of a greedy answer."""
        body = {
            "prompt": PROMPT,
            "n_predict": num_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "cache_prompt": False,
            **({"grammar": GRAMMAR} if grammar else {}),
        }
        timings: dict[str, Any] = self._call("/completion", json.dumps(body).encode())["timings"]
        if timings["predicted_n"] != num_tokens:
            raise ValueError(f"an answer has {timings['predicted_n']} tokens, not {num_tokens}")
        return timings

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)

    def _call(self, path: str, body: bytes | None = None) -> dict[str, Any]:
        request = urllib.request.Request(
            self._address + path, body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=600) as reply:
            found: dict[str, Any] = json.load(reply)
            return found


def measure(program: str, model: str, threads: int, num_tokens: int, rounds: int) -> dict[str, Any]:
    """All ways in turns. `gain`: the time of free answers divided by the way's."""
    kinds = dict.fromkeys(kind for kind, _ in WAYS.values())
    servers = {
        kind: LlamaServer(program, model, threads, kind, PORT + number)
        for number, kind in enumerate(kinds)
    }
    found: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    try:
        for server in servers.values():
            server.wait()
            server.complete(8, grammar=True)  # to warm up
        for _ in range(rounds):
            for way, (kind, grammar) in WAYS.items():
                found[way].append(servers[kind].complete(num_tokens, grammar=grammar))
                print(way, found[way][-1]["predicted_per_token_ms"], file=sys.stderr, flush=True)
    finally:
        for server in servers.values():
            server.close()
    times = {way: [one["predicted_per_token_ms"] for one in all_] for way, all_ in found.items()}
    return {
        "program": "llama-server",
        "model": Path(model).name,
        "threads": threads,
        "tokens": num_tokens,
        "ways": [
            {
                "way": way,
                "ms_per_token": asdict(summarise(times[way])),
                "gain": asdict(paired_ratio(times["free"], times[way])),
                "drafted": sum(one.get("draft_n", 0) for one in found[way]),
                "accepted": sum(one.get("draft_n_accepted", 0) for one in found[way]),
            }
            for way in WAYS
        ],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("server", help="the program llama-server")
    parser.add_argument("model", help="a GGUF file")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("--out", type=Path, default=RESULTS / "extract-llama.cpp.json")
    args = parser.parse_args(arguments)
    measured = measure(args.server, args.model, args.threads, args.tokens, args.rounds)
    write(args.out, record("extract-llama.cpp", measured).document())


if __name__ == "__main__":
    main()
