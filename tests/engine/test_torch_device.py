"""Devices and types of numbers, on a machine without cards."""

from __future__ import annotations

import pytest
import torch

from qwink.engine.gpu import has_nvidia_gpu
from qwink.engine.torch.device import choose_device, choose_dtype
from qwink.errors import OptionError

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Two cards of the given compute capability."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: request.param)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Tesla T4")


@pytest.mark.parametrize("card", [(8, 0)], indirect=True)
@pytest.mark.usefixtures("card")
def test_devices() -> None:
    assert choose_device("auto") == choose_device("cuda") == CUDA
    assert choose_device("cuda:1") == torch.device("cuda", 1)
    assert choose_device("cpu") == CPU
    with pytest.raises(OptionError, match="the last device here is cuda:1"):
        choose_device("cuda:2")


@pytest.mark.parametrize("name", ["gpu", "mps", "meta", "", "cuda:x", "cpu:cpu"])
def test_unknown_names(name: str) -> None:
    with pytest.raises(OptionError, match="it must be auto, cpu, cuda or cuda:N"):
        choose_device(name)


def test_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == CPU
    with pytest.raises(OptionError, match="PyTorch finds no GPU"):
        choose_device("cuda")


@pytest.mark.parametrize(
    ("card", "expected"),
    [((7, 5), torch.float16), ((8, 0), torch.bfloat16), ((9, 0), torch.bfloat16)],
    indirect=["card"],
)
@pytest.mark.usefixtures("card")
def test_the_card_chooses_the_type(expected: torch.dtype) -> None:
    assert choose_dtype("auto", CUDA) == expected
    assert choose_dtype("float32", CUDA) == torch.float32
    assert choose_dtype("float16", CUDA) == torch.float16


@pytest.mark.parametrize("card", [(7, 5)], indirect=True)
@pytest.mark.usefixtures("card")
def test_bfloat16_is_refused_where_the_card_lacks_it() -> None:
    with pytest.raises(OptionError, match="Tesla T4 does not support; use auto or float16"):
        choose_dtype("bfloat16", CUDA)


def test_types_on_the_cpu() -> None:
    assert choose_dtype("auto", CPU) == torch.float32
    assert choose_dtype("bfloat16", CPU) == torch.bfloat16
    with pytest.raises(OptionError, match="it must be auto, float32, float16, bfloat16"):
        choose_dtype("int8", CPU)


def test_asking_the_driver() -> None:
    if torch.cuda.is_available():
        assert has_nvidia_gpu()
    else:
        assert has_nvidia_gpu() in (True, False)  # a driver can exist without a usable card
