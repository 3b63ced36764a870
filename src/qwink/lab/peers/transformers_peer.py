"""Transformers on PyTorch, the reference implementation."""

from __future__ import annotations

import io
import time

import PIL.Image
import torch
import transformers
from transformers import AutoImageProcessor, AutoTokenizer, Qwen3VLForConditionalGeneration

from qwink.lab.peers.base import PeerAnswer, serve

IMAGE = "<|image_pad|>"


class HuggingFace:
    """The model's forward pass, called for each token, without the overhead of `generate`."""

    def __init__(self, model: str, threads: int, dtype: str) -> None:
        torch.set_num_threads(threads)
        self._model = Qwen3VLForConditionalGeneration.from_pretrained(
            model, dtype=getattr(torch, dtype)
        ).eval()
        # AutoProcessor would load a processor of videos too, which needs torchvision.
        self._tokenizer = AutoTokenizer.from_pretrained(model)
        self._processor = AutoImageProcessor.from_pretrained(model)

    def versions(self) -> dict[str, str]:
        return {"transformers": transformers.__version__, "torch": torch.__version__}

    @torch.inference_mode()
    def answer(self, picture: bytes, question: str, num_tokens: int) -> PeerAnswer:
        image = PIL.Image.open(io.BytesIO(picture)).convert("RGB")
        pixels = self._processor(images=[image], return_tensors="pt")
        grid = pixels["image_grid_thw"]
        num_visual = int(grid.prod()) // self._processor.merge_size**2
        turn = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": question}]}
        prompt = self._tokenizer.apply_chat_template(
            [turn], tokenize=False, add_generation_prompt=True
        ).replace(IMAGE, IMAGE * num_visual)
        ids = self._tokenizer(prompt, return_tensors="pt")["input_ids"]
        out = self._model(
            input_ids=ids,
            pixel_values=pixels["pixel_values"].to(self._model.dtype),
            image_grid_thw=grid,
            mm_token_type_ids=(ids == self._model.config.image_token_id).int(),
            use_cache=True,
            logits_to_keep=1,
        )
        token = out.logits[:, -1:].argmax(-1)
        first = time.perf_counter()
        for _ in range(num_tokens - 1):
            out = self._model(input_ids=token, past_key_values=out.past_key_values, use_cache=True)
            token = out.logits[:, -1:].argmax(-1)
        return PeerAnswer(first, time.perf_counter(), num_tokens, ids.shape[1], num_visual)


if __name__ == "__main__":
    serve(HuggingFace)
