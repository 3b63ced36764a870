"""A server with the PyTorch engine; a patch simulates a GPU that runs out of memory."""

from __future__ import annotations

from pathlib import Path

import openai
import pytest

from tests.server.process import Serve, ask, image, user

FAULTY = """
import os
import torch
from qwink.cli import main
from qwink.engine.torch.vision import VisionEncoder
encode = VisionEncoder.encode
def breaking(self, images):
    if os.path.exists(os.environ["BREAK"]):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
    return encode(self, images)
VisionEncoder.encode = breaking
main()
"""


def test_running_out_of_memory_ends_only_the_request(serve: Serve, tmp_path: Path) -> None:
    broken = tmp_path / "now"
    server = serve("--engine", "torch", code=FAULTY, BREAK=str(broken)).wait_ready()
    with server.client() as client:
        broken.touch()
        message = "has not enough memory to encode 64 patches; lower max_pixels"
        with pytest.raises(openai.InternalServerError, match=message) as caught:
            ask(client, user(image(1), "What is it?"))
        assert caught.value.code == "out_of_memory"
        broken.unlink()
        assert ask(client, user(image(1), "What is it?")).usage.completion_tokens
    assert server.http.get(f"{server.address}/health").status_code == 200
    assert server.stop() == 0


def test_unsupported_options_end_the_process(serve: Serve) -> None:
    server = serve("--engine", "torch", "--recipe", "fast")
    assert server.wait() == 2
    assert "recipes are for onnx" in server.log
