"""First token and decoding speed of the recipes against Transformers, interleaved in one run.

    python benchmarks/speed.py CHECKPOINT --artifact fast=DIR --artifact balanced=DIR

The work: one 448×448 picture (196 visual tokens) in a prompt of 231 tokens, batch 1, greedy. Each
contender is a process of its own that stays resident and waits while the others run; rounds go
round robin, so that a noisy machine is noisy for all. Random weights time like trained ones.
Writes JSON to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

GRID_SIDE = 28  # patches along each side of 448 px
NUM_VISUAL, IMAGE_START, NUM_PROMPT = 196, 5, 231
RESULTS = Path(__file__).parent / "results"

Run = Callable[[], dict[str, float]]


def pixels() -> Any:
    """uint8 [784, 768], the same for every contender."""
    shape = (GRID_SIDE**2, 768)
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def prompt_ids(image_token: int) -> Any:
    ids = np.random.default_rng(1).integers(0, 150_000, NUM_PROMPT)
    ids[IMAGE_START : IMAGE_START + NUM_VISUAL] = image_token
    return ids


def prepare_qwink(folder: str, threads: int, num_tokens: int) -> Run:
    from qwink.engine.onnx import OnnxEngine
    from qwink.model.artifact import Artifact
    from qwink.model.rope import mrope_positions
    from qwink.types import Grid, ImageSpan, Patches, Prompt

    engine = OnnxEngine(Artifact.load(folder), threads)
    patches = Patches(pixels(), Grid(1, GRID_SIDE, GRID_SIDE), "picture")
    ids = prompt_ids(engine.config.image_token_id)
    cache = engine.open_cache(1, 1024)

    def run() -> dict[str, float]:
        start = time.perf_counter()
        image = engine.encode(patches)
        encoded = time.perf_counter()
        span = ImageSpan(IMAGE_START, NUM_VISUAL, image.grid, image.key)
        positions, following = mrope_positions(NUM_PROMPT, (span,))
        prompt = Prompt(ids, (span,), positions, following)
        hidden = engine.prefill(cache, 0, prompt, {image.key: image}, 0, NUM_PROMPT)
        token = int(engine.logits(hidden[None])[0].argmax())
        first = time.perf_counter()
        for step in range(num_tokens):
            at = NUM_PROMPT + step
            token = int(engine.decode(cache, 0, [token], [at], [following + step])[0].argmax())
        end = time.perf_counter()
        return {
            "encode_ms": (encoded - start) * 1e3,
            "prefill_ms": (first - encoded) * 1e3,
            "first_token_ms": (first - start) * 1e3,
            "decode_ms_per_token": (end - first) * 1e3 / num_tokens,
        }

    return run


def prepare_transformers(folder: str, threads: int, num_tokens: int, dtype: str) -> Run:
    import torch
    from transformers import Qwen3VLForConditionalGeneration

    torch.set_num_threads(threads)
    kind = getattr(torch, dtype)
    model = Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=kind).eval()
    # [784, 768] → [784, 3, 2, 256]: the frame twice, normalised, as the processor gives it.
    still = torch.from_numpy(pixels()).float().div(127.5).sub(1).reshape(-1, 3, 1, 256)
    values = still.expand(-1, 3, 2, 256).reshape(-1, 1536).to(kind)
    ids = torch.from_numpy(prompt_ids(model.config.image_token_id))[None]
    grid = torch.tensor([[1, GRID_SIDE, GRID_SIDE]])
    kinds = (ids == model.config.image_token_id).int()

    @torch.inference_mode()
    def run() -> dict[str, float]:
        start = time.perf_counter()
        # The model's own forward pass, without what generate() adds around it.
        out = model(
            input_ids=ids,
            pixel_values=values,
            image_grid_thw=grid,
            mm_token_type_ids=kinds,
            use_cache=True,
            logits_to_keep=1,
        )
        token = out.logits[:, -1:].argmax(-1)
        first = time.perf_counter()
        for _ in range(num_tokens):
            out = model(input_ids=token, past_key_values=out.past_key_values, use_cache=True)
            token = out.logits[:, -1:].argmax(-1)
        end = time.perf_counter()
        return {
            "first_token_ms": (first - start) * 1e3,
            "decode_ms_per_token": (end - first) * 1e3 / num_tokens,
        }

    return run


def serve(contender: str, folder: str, threads: int, num_tokens: int) -> None:
    """Worker: a run for each line on stdin, its figures as a line of JSON on stdout."""
    if contender == "qwink":
        run = prepare_qwink(folder, threads, num_tokens)
    else:
        run = prepare_transformers(folder, threads, num_tokens, contender)
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:
        print(json.dumps({**run(), "peak_rss_bytes": peak_rss_bytes()}), flush=True)


def peak_rss_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


class Worker:
    """A contender's process."""

    def __init__(self, kind: str, folder: str, threads: int, num_tokens: int) -> None:
        command = [sys.executable, __file__, "--worker", kind, folder]
        command += ["--threads", str(threads), "--tokens", str(num_tokens)]
        start = time.perf_counter()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._read()
        self.ready_ms = (time.perf_counter() - start) * 1e3

    def _read(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a worker died; see its message above")
        values: dict[str, float] = json.loads(line)
        return values

    def run(self) -> dict[str, float]:
        assert self._process.stdin is not None
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def hardware() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), "?")
    flags = next((x.split(":")[1].split() for x in lines if x.startswith("flags")), [])
    wanted = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8", "amx_bf16")
    return {
        "cpu": model,
        "features": [flag for flag in wanted if flag in flags],
        "num_cpus": len(os.sched_getaffinity(0)),
        "memory_read_gb_per_s": memory_read(),
        "system": platform.platform(),
    }


def memory_read(num_threads: int = 2) -> float:
    """Best of a few passes over one gigabyte, in GB/s: the ceiling of decoding."""
    from concurrent.futures import ThreadPoolExecutor

    data, best = np.ones(250_000_000, np.float32), float("inf")
    with ThreadPoolExecutor(num_threads) as pool:
        for _ in range(5):
            start = time.perf_counter()
            list(pool.map(np.max, np.array_split(data, num_threads)))
            best = min(best, time.perf_counter() - start)
    return round(data.nbytes / 1e9 / best, 1)


def summary(rows: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Median, least and largest of each figure."""
    return {
        key: {
            "median": round(statistics.median(row[key] for row in rows), 2),
            "min": round(min(row[key] for row in rows), 2),
            "max": round(max(row[key] for row in rows), 2),
        }
        for key in rows[0]
    }


def ratios(rows: dict[str, list[dict[str, float]]], reference: str) -> dict[str, dict[str, float]]:
    """How many times faster than `reference`: the median over the rounds of the ratio within."""
    return {
        name: {
            key: round(
                statistics.median(
                    base[key] / mine[key] for base, mine in zip(rows[reference], own, strict=True)
                ),
                2,
            )
            for key in ("first_token_ms", "decode_ms_per_token")
        }
        for name, own in rows.items()
        if name != reference
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkpoint", nargs="?")
    parser.add_argument("--artifact", action="append", default=[], metavar="NAME=DIR")
    parser.add_argument("--dtype", action="append", default=[], help="of Transformers")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--out", type=Path, default=RESULTS / "speed.json")
    parser.add_argument("--worker", nargs=2, metavar=("KIND", "DIR"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        serve(args.worker[0], args.worker[1], args.threads, args.tokens)
        return

    workers: dict[str, Worker] = {}
    for item in args.artifact:
        name, _, folder = item.partition("=")
        workers[name] = Worker("qwink", folder, args.threads, args.tokens)
    for dtype in args.dtype or ["bfloat16"]:
        name = f"transformers-{dtype}"
        workers[name] = Worker(dtype, args.checkpoint, args.threads, args.tokens)
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in workers}
    for worker in workers.values():
        worker.run()  # warm up
    for number in range(args.rounds):
        for name, worker in workers.items():
            rows[name].append(worker.run())
            shown = {key: round(value) for key, value in rows[name][-1].items() if "ms" in key}
            print(f"round {number + 1} {name} {shown}", file=sys.stderr, flush=True)
    reference = f"transformers-{(args.dtype or ['bfloat16'])[0]}"
    result = {
        "work": "448x448 picture, 196 visual tokens, prompt of 231, batch 1, greedy",
        "threads": args.threads,
        "rounds": args.rounds,
        "hardware": hardware(),
        "versions": {
            name: version(name)
            for name in ("qwink", "onnxruntime", "numpy", "torch", "transformers")
        },
        "contenders": {
            name: {"process_ready_ms": round(workers[name].ready_ms), **summary(own)}
            for name, own in rows.items()
        },
        "times_faster_than": {reference: ratios(rows, reference)},
    }
    for worker in workers.values():
        worker.close()
    args.out.parent.mkdir(exist_ok=True)
    args.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result["times_faster_than"]))


if __name__ == "__main__":
    main()
