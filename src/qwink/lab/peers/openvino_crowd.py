"""OpenVINO GenAI's continuous batching."""

from __future__ import annotations

import io
from importlib.metadata import version
from typing import Any

import numpy as np
import openvino
import openvino_genai
import PIL.Image

from qwink.lab.peers.base import serve

CACHE_GB = 2  # enough for all sequences that run at once


class OpenVinoCrowd:
    """`properties` are passed to OpenVINO. `running`: sequences in a step at most."""

    def __init__(
        self, model: str, threads: int, running: int, properties: dict[str, Any], split: bool = True
    ) -> None:
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = CACHE_GB
        scheduler.max_num_seqs = running
        scheduler.dynamic_split_fuse = split
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(
            model, scheduler, "CPU", {"INFERENCE_NUM_THREADS": threads, **properties}
        )

    def versions(self) -> dict[str, str]:
        return {"openvino-genai": version("openvino-genai"), "openvino": openvino.__version__}

    def answer_all(self, pictures: list[bytes], question: str, num_tokens: int) -> list[int]:
        images = [PIL.Image.open(io.BytesIO(picture)).convert("RGB") for picture in pictures]
        wanted = openvino_genai.GenerationConfig()
        wanted.max_new_tokens = num_tokens
        wanted.ignore_eos = True
        wanted.do_sample = False
        found = self._pipeline.generate(
            [question] * len(images),
            images=[[openvino.Tensor(np.asarray(image)[None])] for image in images],
            generation_config=[wanted] * len(images),
        )
        # Each result has the metrics of all together.
        total = found[0].perf_metrics.get_num_generated_tokens()
        return [total // len(found) + (number < total % len(found)) for number in range(len(found))]


if __name__ == "__main__":
    serve(OpenVinoCrowd)
