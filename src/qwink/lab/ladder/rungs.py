"""The rungs: each service adds one optimisation to the previous one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from qwink.lab.ladder.questions import Workload


@dataclass(frozen=True, slots=True)
class Plain:
    """A service on Transformers and PyTorch.

    `prepare`: pictures are prepared by the checkpoint's processor with Lanczos, by simple code with
    Pillow and NumPy, or by qwink. `areas`: the limits of the checkpoint or of the task. A service
    that is not `resident` loads the model for each request, as a service scaled to zero does.
    `longest_side` is in pixels; `draws`: temperature 0.45, top-p 0.95, repetition penalty 1.1.
    """

    prepare: Literal["processor", "hand", "qwink"] = "processor"
    areas: Literal["full", "task"] = "full"
    resident: bool = True
    dtype: Literal["float32", "float16"] = "float32"
    kv_cache: bool = True
    longest_side: int | None = None
    max_tokens: int = 16
    draws: bool = False
    batch: int = 1


@dataclass(frozen=True, slots=True)
class Ours:
    """A service on ONNX Runtime. `running` is the number of answers decoded together."""

    recipe: str
    max_tokens: int
    embedding_cache: bool = False
    prefix_cache: bool = False
    running: int = 1


@dataclass(frozen=True, slots=True)
class Rung:
    """A step of the ladder."""

    key: str
    name: str
    service: Plain | Ours
    workload: Workload = "pictures"


def cpu_rungs(recipe: str, users: int, max_tokens: int) -> tuple[Rung, ...]:
    """From Transformers in fp32 to qwink with concurrent users."""
    plain = Plain(resident=False, max_tokens=max_tokens)
    prepared = replace(plain, prepare="qwink")
    sized = replace(prepared, areas="task")
    quantised = Ours(recipe, max_tokens)
    embeddings = replace(quantised, embedding_cache=True)
    prefixes = replace(embeddings, prefix_cache=True)
    return (
        Rung("a", "plain service", plain),
        Rung("b", "+ fast preparation", prepared),
        Rung("c", "+ task's budget", sized),
        Rung("d", "+ resident model", replace(sized, resident=True)),
        Rung("e", "+ ONNX Runtime", Ours("exact", max_tokens)),
        Rung("f", f"+ recipe {recipe}", quantised),
        Rung("g", "+ embedding cache", embeddings, "mix"),
        Rung("h", "+ prefix cache", prefixes, "mix"),
        Rung("i", "+ batching", replace(prefixes, running=users), "users"),
    )


def gpu_rungs(max_tokens: int) -> tuple[Rung, ...]:
    """Transformers on a GPU. Answers are up to `2 * max_tokens` long before rung 5."""
    plain = Plain("hand", kv_cache=False, max_tokens=2 * max_tokens)
    half = replace(plain, dtype="float16", kv_cache=True)
    small = replace(half, longest_side=768)
    tools = replace(small, prepare="processor")
    limited = replace(tools, max_tokens=max_tokens, draws=True)
    return (
        Rung("1", "fp32, full resolution", plain),
        Rung("2", "+ fp16 and KV cache", half),
        Rung("3", "+ longest side 768", small),
        Rung("4", "+ processor's tools", tools),
        Rung("5", "+ limits of the answer", limited),
        Rung("6", "+ batch of 2", replace(limited, batch=2)),
    )
