"""GET /v1/budgets: what pictures may cost here, in tokens and, as this server measured, in time."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from qwink.inputs.budget import TOKEN_PIXELS, choose_budget
from qwink.server.service import Service
from qwink.types import TASKS, Result

_MEMORY = 0.8  # of earlier answers, at each new one: the last five make up two thirds


class _Rate:
    """Milliseconds a token, over recent answers; longer ones count for more."""

    def __init__(self) -> None:
        self._ms = self._tokens = 0.0

    def add(self, ms: float, tokens: int) -> None:
        if ms > 0 and tokens > 0:
            self._ms = self._ms * _MEMORY + ms
            self._tokens = self._tokens * _MEMORY + tokens

    def __call__(self) -> float | None:
        return round(self._ms / self._tokens, 3) if self._tokens else None


class Pace:
    """How long the stages that grow with tokens took of late."""

    def __init__(self) -> None:
        self.answers = 0
        self._encode, self._prefill, self._generate = _Rate(), _Rate(), _Rate()

    def answer(self, result: Result) -> None:
        """Learn from a whole answer."""
        self.answers += 1
        timings, usage = result.timings, result.usage
        # Where much of the prompt was at hand, so were some of its pictures, and nobody says which.
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


def budget_routes(service: Service, pace: Pace) -> APIRouter:
    router = APIRouter()

    @router.get("/v1/budgets", summary="Ask what pictures cost")
    async def budgets() -> dict[str, Any]:
        """Areas of pictures in pixels, for each `task` and at all; `token_pixels` make a token.
        `ms_per_token` is what this server measured of late, null where it has not yet.
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
            "ms_per_token": pace.document(),
        }

    return router
