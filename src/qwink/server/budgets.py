"""GET /v1/budgets: limits of picture sizes, and the measured time per token of each stage."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from qwink.inputs.budget import TOKEN_PIXELS, choose_budget
from qwink.server.service import ModelService
from qwink.types import TASKS, Result

_DECAY = 0.8  # weight of earlier answers at each new one: the last five count for two thirds


class _MovingAverage:
    """Milliseconds per token over recent answers, weighted by their number of tokens."""

    def __init__(self) -> None:
        self._ms = self._tokens = 0.0

    def add(self, ms: float, tokens: int) -> None:
        if ms > 0 and tokens > 0:
            self._ms = self._ms * _DECAY + ms
            self._tokens = self._tokens * _DECAY + tokens

    def __call__(self) -> float | None:
        return round(self._ms / self._tokens, 3) if self._tokens else None


class TokenTimes:
    """Recent milliseconds per token of the stages whose time grows with the number of tokens."""

    def __init__(self) -> None:
        self.answers = 0
        self._encode = _MovingAverage()
        self._prefill = _MovingAverage()
        self._generate = _MovingAverage()

    def add(self, result: Result) -> None:
        """Include the timings of a finished answer."""
        self.answers += 1
        timings, usage = result.timings, result.usage
        # If the cached prefix is longer than all image tokens, it may contain some of the images,
        # and the number of tokens encoded is unknown.
        if timings.origins.get("encode") == "computed" and usage.cached_tokens < usage.image_tokens:
            self._encode.add(timings.encode_ms, usage.image_tokens)
        self._prefill.add(timings.prefill_ms, usage.prompt_tokens - usage.cached_tokens)
        self._generate.add(timings.generate_ms, usage.completion_tokens - 1)

    def document(self) -> dict[str, Any]:
        return {
            "answers": self.answers,
            "encode_ms": self._encode(),
            "prefill_ms": self._prefill(),
            "generate_ms": self._generate(),
        }


def budget_routes(service: ModelService, token_times: TokenTimes) -> APIRouter:
    router = APIRouter()

    @router.get("/v1/budgets", summary="Show the limits and costs of pictures")
    async def budgets() -> dict[str, Any]:
        """The least and largest picture area in pixels, for each `task` and overall;
        `token_pixels` pixels make one token. `ms_per_token` is measured on recent answers; a stage
        that has not run yet is null.
        """
        vlm = service.vlm
        preprocessor = vlm.engine.config.preprocessor
        limits = preprocessor.min_pixels, preprocessor.max_pixels
        tasks = {}
        for task in TASKS:
            if task != "auto":
                budget = choose_budget(task, "", limits=limits)
                tasks[task] = {"min_pixels": budget.min_pixels, "max_pixels": budget.max_pixels}
        return {
            "object": "budgets",
            "model": service.model_names[0],
            "token_pixels": TOKEN_PIXELS,
            "min_pixels": limits[0],
            "max_pixels": limits[1],
            "tasks": tasks,
            "context": vlm.context,
            "max_tokens": vlm.sampling.max_tokens,
            "max_body_bytes": service.options.max_body,
            "ms_per_token": token_times.document(),
        }

    return router
