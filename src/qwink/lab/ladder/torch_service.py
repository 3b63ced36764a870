"""The plain services on Transformers: `python -m qwink.lab.ladder.torch_service`.

In a separate process, PyTorch's memory is freed at its end. Its arguments are a file with a
`ServiceJob` as JSON, and a folder. For each answer it writes a file NUMBER.npz there and a line of
JSON to stdout.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import torch
from transformers import (
    AutoImageProcessor,
    AutoTokenizer,
    GenerationConfig,
    Qwen3VLForConditionalGeneration,
    StoppingCriteria,
)
from transformers.utils import logging

from qwink.inputs.budget import Budget, fit
from qwink.inputs.images import decode, open_image
from qwink.inputs.patches import patchify, prepare
from qwink.lab.ladder.answers import unpatchify
from qwink.lab.ladder.job import ServiceJob
from qwink.lab.ladder.questions import Areas, Question
from qwink.lab.ladder.rungs import Plain
from qwink.types import Grid

IMAGE_TOKEN = "<|image_pad|>"


class FirstToken(StoppingCriteria):  # type: ignore[misc]
    """Records the time of the first token; never stops the generation."""

    def __init__(self) -> None:
        self.at: float | None = None

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        if self.at is None:
            _wait(input_ids.device)
            self.at = time.perf_counter()
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


class TorchService:
    """Answers batches of questions."""

    def __init__(self, checkpoint: str, device: str, options: Plain) -> None:
        self._checkpoint, self._options = checkpoint, options
        self._device = torch.device(device)
        self._model: Any = None

    def answer(self, questions: Sequence[Question]) -> Iterator[dict[str, Any]]:
        """Times and tokens of each answer of a batch, with arrays `logits` and `image`."""
        start = time.perf_counter()
        if self._model is None or not self._options.resident:
            self._load()
        loaded = time.perf_counter()
        images = [self._prepare(question) for question in questions]
        prepared = time.perf_counter()
        inputs = self._inputs(questions, images)
        clock = FirstToken()
        out = self._model.generate(
            **inputs,
            generation_config=self._generation(),
            stopping_criteria=[clock],
        )
        _wait(self._device)
        end = time.perf_counter()
        assert clock.at is not None, "generate gives at least one token"
        prompt = inputs["input_ids"].shape[1]
        for row, (question, (values, grid)) in enumerate(zip(questions, images, strict=True)):
            tokens = self._until_end(out.sequences[row, prompt:].tolist())
            # [P, 3 * 2 * p * p] with two equal frames, -1 to 1 → [P, 3 * p * p], 0 to 255
            pixels = values.float().cpu().reshape(len(values), 3, 2, -1)[:, :, 0].flatten(1)
            yield {
                "name": question.name,
                "load_ms": (loaded - start) * 1e3,
                "prepare_ms": (prepared - loaded) * 1e3,
                "first_token_ms": (clock.at - start) * 1e3,
                "total_ms": (end - start) * 1e3,
                "per_answer_ms": (end - start) * 1e3 / len(questions),
                "image_tokens": grid.num_patches // 4,
                "tokens": tokens,
                "text": self._tokenizer.decode(tokens, skip_special_tokens=True),
                "logits": out.logits[0][row].float().cpu().numpy(),
                "image": unpatchify(pixels.mul(127.5).add(127.5).round().numpy(), grid),
            }

    def _load(self) -> None:
        self._model = None
        gc.collect()
        self._tokenizer = AutoTokenizer.from_pretrained(self._checkpoint, padding_side="left")
        backend = {} if self._device.type != "cpu" else {"backend": "pil"}
        self._processor = AutoImageProcessor.from_pretrained(self._checkpoint, **backend)
        dtype = getattr(torch, self._options.dtype)
        model = Qwen3VLForConditionalGeneration.from_pretrained(self._checkpoint, dtype=dtype)
        self._model = model.eval().to(self._device)

    def _prepare(self, question: Question) -> tuple[torch.Tensor, Grid]:
        """Pixel values [P, 3 * 2 * p * p] in -1..1 and their grid."""
        areas = question.full if self._options.areas == "full" else question.task
        if self._options.prepare == "processor":
            return self._by_processor(question.path, areas)
        budget = Budget("auto", *areas, "the ladder's")
        if self._options.prepare == "qwink":
            opened = open_image(question.path)
            width, height = fit(*opened.size, budget)
            picture = decode(opened, at_least=(2 * width, 2 * height))
            patches = prepare(picture, (width, height))
            values = torch.from_numpy(patches.pixels).float().div(127.5).sub(1)
            return self._doubled(values), patches.grid
        with PIL.Image.open(question.path) as image:
            rgb = self._limited(image.convert("RGB"))
        resized = rgb.resize(fit(*rgb.size, budget), PIL.Image.Resampling.LANCZOS)
        pixels, grid = patchify(np.asarray(resized))
        normalised = (pixels.astype(np.float32) / 255 - 0.5) / 0.5
        return self._doubled(torch.from_numpy(normalised)), grid

    def _by_processor(self, path: str, areas: Areas) -> tuple[torch.Tensor, Grid]:
        with PIL.Image.open(path) as image:
            rgb = self._limited(image.convert("RGB"))
        # Only Pillow has Lanczos; on a GPU, PyTorch's best filter is bicubic.
        filters = PIL.Image.Resampling
        out = self._processor(
            images=[rgb],
            size={"shortest_edge": areas[0], "longest_edge": areas[1]},
            resample=filters.LANCZOS if self._device.type == "cpu" else filters.BICUBIC,
            return_tensors="pt",
            **({} if self._device.type == "cpu" else {"device": self._device}),
        )
        return out["pixel_values"], Grid(*out["image_grid_thw"][0].tolist())

    def _limited(self, image: PIL.Image.Image) -> PIL.Image.Image:
        side = self._options.longest_side
        if side is not None and max(image.size) > side:
            image.thumbnail((side, side), PIL.Image.Resampling.LANCZOS)
        return image

    @staticmethod
    def _doubled(values: torch.Tensor) -> torch.Tensor:
        """[P, 3 * p * p] → [P, 3 * 2 * p * p]: a still image has two equal frames."""
        still = values.reshape(len(values), 3, 1, -1)
        return still.expand(-1, 3, 2, -1).flatten(1)

    def _inputs(
        self, questions: Sequence[Question], images: Sequence[tuple[torch.Tensor, Grid]]
    ) -> dict[str, torch.Tensor]:
        texts = [
            self._text(question.text, grid.num_patches // 4)
            for question, (_, grid) in zip(questions, images, strict=True)
        ]
        encoded = self._tokenizer(texts, padding=True, return_tensors="pt")
        ids = encoded["input_ids"]
        values = torch.cat([values for values, _ in images])
        grids = [[grid.t, grid.h, grid.w] for _, grid in images]
        inputs = {
            "input_ids": ids,
            "attention_mask": encoded["attention_mask"],
            "mm_token_type_ids": (ids == self._model.config.image_token_id).int(),
            "pixel_values": values.to(self._model.dtype),
            "image_grid_thw": torch.tensor(grids),
        }
        return {name: tensor.to(self._device) for name, tensor in inputs.items()}

    def _text(self, question: str, num_tokens: int) -> str:
        content = [{"type": "image"}, {"type": "text", "text": question}]
        text: str = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
        )
        return text.replace(IMAGE_TOKEN, IMAGE_TOKEN * num_tokens)

    def _generation(self) -> GenerationConfig:
        own = self._model.generation_config
        drawing = {"temperature": 0.45, "top_p": 0.95, "repetition_penalty": 1.1}
        return GenerationConfig(
            max_new_tokens=self._options.max_tokens,
            do_sample=self._options.draws,
            use_cache=self._options.kv_cache,
            return_dict_in_generate=True,
            output_logits=True,
            eos_token_id=own.eos_token_id,
            pad_token_id=own.pad_token_id,
            **(drawing if self._options.draws else {}),
        )

    def _until_end(self, tokens: list[int]) -> list[int]:
        """A row's tokens up to its end token, without the padding to the batch's length."""
        ends = self._model.generation_config.eos_token_id
        ends = set(ends if isinstance(ends, list) else [ends])
        last = next((index for index, token in enumerate(tokens) if token in ends), len(tokens))
        return tokens[: last + 1]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main(path: str, folder: str) -> None:
    job = ServiceJob.from_json(Path(path).read_text("utf-8"))
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.manual_seed(0)
    if job.threads:
        torch.set_num_threads(job.threads)
    service = TorchService(job.checkpoint, job.device, job.service)
    size = job.service.batch
    groups = [job.questions[at : at + size] for at in range(0, len(job.questions), size)]
    if job.service.resident:  # warm up
        list(service.answer(groups[0]))
    number = 0
    for group in groups:
        for answer in service.answer(group):
            arrays = {name: answer.pop(name) for name in ("logits", "image")}
            np.savez(Path(folder, f"{number}.npz"), **arrays)
            print(json.dumps(answer), flush=True)
            number += 1


if __name__ == "__main__":
    with torch.inference_mode():
        main(*sys.argv[1:])
