"""An engine with another budget of rows, which counts its steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from qwink.engine.base import Engine


class Rows:
    """`engine`, saying that `cheap_rows` tokens of a step are cheap."""

    def __init__(self, engine: Engine, cheap_rows: int) -> None:
        self._engine = engine
        self.traits = replace(engine.traits, cheap_rows=cheap_rows)
        self.num_steps = self.num_rows = self.most_rows = 0

    def step(self, cache: Any, runs: Any) -> Any:
        self.num_steps += 1
        self.num_rows += sum(len(run.ids) for run in runs)
        self.most_rows = max(self.most_rows, *(len(run.ids) for run in runs))
        return self._engine.step(cache, runs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)
