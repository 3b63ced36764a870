"""A card's memory, simulated: what fits, and failures when it runs out."""

from __future__ import annotations

import logging
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from qwink.engine.torch.cache import aligned, bytes_per_token
from qwink.engine.torch.engine import TorchEngine
from qwink.engine.torch.memory import HEADROOM, DeviceMemory
from qwink.engine.torch.weights import weight_bytes
from qwink.errors import OutOfMemory
from qwink.inputs.chat import ChatTemplate
from qwink.inputs.tokenizer import Tokenizer
from qwink.runtime.requests import Model
from qwink.runtime.vlm import VLM
from qwink.types import SamplingParams
from tests.runtime.test_scheduler import running, submit


class SmallMemory(DeviceMemory):
    """A device with `room` bytes of memory; counts how often unused memory was returned."""

    def __init__(self, room: int) -> None:
        super().__init__(torch.device("cpu"))
        self.room, self.num_released = room, 0

    def available(self) -> int:
        return self.room

    def release(self) -> None:
        self.num_released += 1


class Fault:
    """Raises PyTorch's out-of-memory the next `left` times that a layer runs."""

    def __init__(self, layer: Any, least_batch: int = 1) -> None:
        self.left = 0
        self._least = least_batch
        layer.register_forward_pre_hook(self._before)

    def _before(self, _: Any, inputs: tuple[torch.Tensor]) -> None:
        if self.left and len(inputs[0]) >= self._least:
            self.left -= 1
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def open_engine(folder: Path, room: int = 1 << 30) -> tuple[TorchEngine, SmallMemory]:
    memory = SmallMemory(room)
    return TorchEngine(folder, "cpu", threads=1, memory=memory), memory


def test_weights_that_cannot_fit_are_refused(tiny_checkpoint: tuple[Path, Any]) -> None:
    with pytest.raises(OutOfMemory, match=r"weights take 0\.0 GB, cpu has room for 0\.0 GB; use"):
        open_engine(tiny_checkpoint[0], room=1000)


def test_slots_are_fitted(
    tiny_checkpoint: tuple[Path, Any], caplog: pytest.LogCaptureFixture
) -> None:
    engine, memory = open_engine(tiny_checkpoint[0])
    token_bytes = bytes_per_token(engine.config.text, torch.float32)
    slot_bytes = (aligned(500) + 1) * token_bytes
    memory.room = 3 * slot_bytes
    with caplog.at_level(logging.WARNING):
        assert engine.open_cache(3, 500).num_slots == 3
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        assert engine.open_cache(8, 500).num_slots == 3
    assert "room for 3 answers at once, not 8" in caplog.text
    memory.room = slot_bytes - 1
    with pytest.raises(OutOfMemory, match=f"or {slot_bytes // token_bytes - 1} tokens beside"):
        engine.open_cache(8, 500)


def test_memory_of_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (9_000, 10_000))
    assert DeviceMemory(torch.device("cuda", 0)).available() == 9_000 - HEADROOM * 10_000
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (500, 10_000))
    assert DeviceMemory(torch.device("cuda", 0)).available() == 0
    assert DeviceMemory(torch.device("cpu")).available() is None


def test_bytes_of_weights(tiny_checkpoint: tuple[Path, Any]) -> None:
    engine, _ = open_engine(tiny_checkpoint[0])
    reference = tiny_checkpoint[1]
    total = sum(parameter.numel() for parameter in reference.parameters())
    assert weight_bytes(engine.config, torch.float32, quantized=False) == 4 * total


def as_model(engine: TorchEngine, folder: Path) -> Model:
    sampling = SamplingParams(max_tokens=12)
    return Model("tiny", engine, Tokenizer.load(folder), ChatTemplate.load(folder), sampling)


def test_the_service_goes_on_after_a_failed_request(tiny_checkpoint: tuple[Path, Any]) -> None:
    engine, memory = open_engine(tiny_checkpoint[0])
    fault = Fault(engine._modules.layers[1].mlp)
    with VLM(as_model(engine, tiny_checkpoint[0]), 256) as vlm:
        wanted = vlm.ask(None, "Hello").text
        fault.left = 1
        message = r"not enough memory to run \d+ tokens; lower --context"
        with pytest.raises(OutOfMemory, match=message):
            vlm.ask(None, "What is this?")
        assert memory.num_released == 1
        assert vlm.ask(None, "Hello").text == wanted


def test_a_batch_that_runs_out_is_tried_one_by_one(tiny_checkpoint: tuple[Path, Any]) -> None:
    engine, memory = open_engine(tiny_checkpoint[0])
    fault = Fault(engine._modules.layers[1].mlp, least_batch=2)
    texts = ("Hello", "Read the text.")
    with running(as_model(engine, tiny_checkpoint[0])) as (vlm, gate):
        wanted = [vlm.ask(question=text).text for text in texts]
        gate.gate.clear()
        fault.left = 3
        inboxes = [submit(vlm, text, 12)[1] for text in texts]
        gate.gate.set()
        assert [inbox.result().text for inbox in inboxes] == wanted
        assert (fault.left, memory.num_released) == (0, 3)


def test_the_tensors_of_a_failed_step_are_freed() -> None:
    memory = SmallMemory(0)
    alive: list[weakref.ref[torch.Tensor]] = []

    def step() -> None:
        large = torch.zeros(8)
        alive.append(weakref.ref(large))
        raise torch.OutOfMemoryError

    with pytest.raises(OutOfMemory) as caught, memory.recovering("do it", "do less"):
        step()
    assert alive[0]() is None
    assert str(caught.value) == "cpu has not enough memory to do it; do less"


def test_the_error_of_encoding_names_the_option_to_lower(
    tiny_checkpoint: tuple[Path, Any], picture: Path
) -> None:
    engine, _ = open_engine(tiny_checkpoint[0])
    fault = Fault(engine._modules.visual.blocks[0].mlp)
    with VLM(as_model(engine, tiny_checkpoint[0]), 512) as vlm:
        fault.left = 1
        with pytest.raises(OutOfMemory, match=r"to encode \d+ patches; lower max_pixels"):
            vlm.encode(picture)
        assert vlm.encode(picture).num_tokens
