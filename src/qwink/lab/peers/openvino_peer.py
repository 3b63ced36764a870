"""OpenVINO GenAI."""

from __future__ import annotations

import io
import time
from importlib.metadata import version
from typing import Any

import numpy as np
import openvino
import openvino_genai
import PIL.Image

from qwink.lab.peers.base import PeerAnswer, serve


class _Stamps(openvino_genai.StreamerBase):  # type: ignore[misc]
    """Records the times of the first and last token."""

    def __init__(self) -> None:
        super().__init__()
        self.first_at: float | None = None
        self.last_at = 0.0
        self.num_tokens = 0

    def write(self, tokens: int | list[int]) -> Any:
        self.last_at = time.perf_counter()
        self.first_at = self.first_at or self.last_at
        self.num_tokens += len(tokens) if isinstance(tokens, list) else 1
        return openvino_genai.StreamingStatus.RUNNING

    def end(self) -> None:
        pass


class OpenVino:
    """`properties` are passed to OpenVINO."""

    def __init__(self, model: str, threads: int, properties: dict[str, Any]) -> None:
        self._pipeline = openvino_genai.VLMPipeline(
            model,
            "CPU",
            PERFORMANCE_HINT="LATENCY",
            INFERENCE_NUM_THREADS=threads,
            **properties,
        )

    def versions(self) -> dict[str, str]:
        return {"openvino-genai": version("openvino-genai"), "openvino": openvino.__version__}

    def answer(self, picture: bytes, question: str, num_tokens: int) -> PeerAnswer:
        stamps = _Stamps()
        image = PIL.Image.open(io.BytesIO(picture)).convert("RGB")
        found = self._pipeline.generate(
            question,
            images=[openvino.Tensor(np.asarray(image)[None])],
            streamer=stamps,
            max_new_tokens=num_tokens,
            ignore_eos=True,
            do_sample=False,
        )
        if stamps.first_at is None:
            raise ValueError("no token came")
        num_prompt = found.perf_metrics.get_num_input_tokens()
        return PeerAnswer(stamps.first_at, stamps.last_at, stamps.num_tokens, num_prompt)


if __name__ == "__main__":
    serve(OpenVino)
