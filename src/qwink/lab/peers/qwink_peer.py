"""qwink, through `VLM.ask`."""

from __future__ import annotations

import time
from importlib.metadata import version
from typing import Any

import qwink
from qwink.inputs.budget import TOKEN_PIXELS
from qwink.lab.peers.base import PeerAnswer, serve
from qwink.runtime.memory import Memory
from qwink.runtime.models import load
from qwink.runtime.waiting import Limits


class Qwink:
    """An artifact, or a checkpoint with a recipe."""

    def __init__(self, model: str, threads: int, recipe: str | None = None) -> None:
        # All prompts start alike, which prompts that are kept would save.
        memory, limits = Memory.default().without_images(), Limits(keep_prompts=False)
        # Random weights answer in loops, which drafts would make faster than any real text.
        self._vlm = load(
            model, recipe=recipe, threads=threads, memory=memory, limits=limits, speculate="off"
        )
        # The picture has the size that is compared already: allow all sizes.
        largest = self._vlm.engine.config.preprocessor.max_pixels
        self._limits: dict[str, Any] = {"min_pixels": TOKEN_PIXELS, "max_pixels": largest}

    def versions(self) -> dict[str, str]:
        return {"qwink": qwink.__version__, "onnxruntime": version("onnxruntime")}

    def answer(self, picture: bytes, question: str, num_tokens: int) -> PeerAnswer:
        start = time.perf_counter()
        result = self._vlm.ask(
            picture, question, max_tokens=num_tokens, temperature=0, **self._limits
        )
        last = time.perf_counter()
        timings, usage = result.timings, result.usage
        return PeerAnswer(
            start + timings.first_token_ms / 1e3,
            last,
            usage.completion_tokens,
            usage.prompt_tokens,
            usage.image_tokens,
            {"encode": timings.encode_ms, "prefill": timings.prefill_ms},
        )


if __name__ == "__main__":
    serve(Qwink)
