"""qwink, through `qwink.batch`."""

from __future__ import annotations

from importlib.metadata import version

import qwink
from qwink.batches.batch import batch
from qwink.inputs.budget import TOKEN_PIXELS
from qwink.lab.peers.base import serve
from qwink.runtime.memory import Memory
from qwink.runtime.models import load
from qwink.runtime.waiting import Limits


class QwinkCrowd:
    """An artifact. `running`: answers under way at once."""

    def __init__(self, model: str, threads: int, running: int) -> None:
        # Random weights answer in loops, which drafts would make faster than any real text.
        self._vlm = load(
            model,
            threads=threads,
            memory=Memory.default().without_images(),
            limits=Limits(max_running=running),
            speculate="off",
        )

    def versions(self) -> dict[str, str]:
        return {"qwink": qwink.__version__, "onnxruntime": version("onnxruntime")}

    def answer_all(self, pictures: list[bytes], question: str, num_tokens: int) -> list[int]:
        largest = self._vlm.engine.config.preprocessor.max_pixels
        rows = batch(
            pictures,
            question,
            model=self._vlm,
            max_tokens=num_tokens,
            temperature=0.0,
            min_pixels=TOKEN_PIXELS,
            max_pixels=largest,
        )
        lengths = []
        for row in rows:
            if row.usage is None:
                raise ValueError(row.error or row.skipped)
            lengths.append(row.usage["completion_tokens"])
        return lengths


if __name__ == "__main__":
    serve(QwinkCrowd)
