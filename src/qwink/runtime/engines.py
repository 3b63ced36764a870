"""The choice of the engine and its options: the only place that decides."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from qwink.engine.base import Engine
from qwink.engine.gpu import has_nvidia_gpu
from qwink.errors import OptionError
from qwink.extras import install_command
from qwink.model.artifact import Artifact, is_artifact
from qwink.native import capabilities
from qwink.settings import Settings

EngineName = Literal["onnx", "torch"]
ENGINES = ("auto", "onnx", "torch")


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How a model is run. `recipe` is the onnx engine's; device, dtype, quantize are torch's."""

    engine: str = "auto"
    recipe: str | None = None
    device: str = "auto"  # cpu, cuda, cuda:1
    dtype: str = "auto"  # float32, float16, bfloat16
    quantize: str | None = None  # int8
    threads: int | None = None

    @classmethod
    def resolve(cls, settings: Settings, **given: Any) -> EngineOptions:
        """`given`, with the settings in place of None. Raises OptionError."""
        chosen = {name: value for name, value in given.items() if value is not None}
        defaults: dict[str, Any] = {"engine": settings.engine, "threads": settings.threads}
        if chosen.get("engine", settings.engine) != "onnx":  # the onnx engine refuses these
            defaults |= {"device": settings.device, "dtype": settings.dtype}
        options = cls(**defaults | chosen)
        if options.threads is not None and options.threads < 1:
            raise OptionError(f"threads is {options.threads}; it must be 1 or more")
        return options


def choose_engine(options: EngineOptions, folder: Path, prefer_onnx: bool = False) -> EngineName:
    """The engine for an artifact's or a checkpoint's folder.

    "auto" takes torch for a checkpoint where there are a GPU and PyTorch, or where an option asks
    for it; `prefer_onnx` leaves it at the latter. Raises OptionError for options that cannot all
    be honoured, and for torch where it is not installed.
    """
    if options.engine not in ENGINES:
        raise OptionError(f"engine is {options.engine!r}; it must be {', '.join(ENGINES)}")
    on_gpu = options.device.startswith("cuda")
    if options.engine == "onnx":
        if on_gpu:
            raise OptionError(f"device is {options.device}, but onnx runs on the CPU; use torch")
        if options.dtype != "auto" or options.quantize is not None:
            raise OptionError("dtype and quantize are for torch; for onnx, choose a recipe")
        return "onnx"
    if options.engine == "auto" and options.dtype == "auto" and options.quantize is None:
        if not on_gpu and (options.recipe is not None or options.device == "cpu"):
            return "onnx"
        if options.device == "auto" and (prefer_onnx or is_artifact(folder) or not _gpu_usable()):
            return "onnx"
    if options.recipe is not None:
        raise OptionError(f"recipe is {options.recipe}, but recipes are for onnx; leave it out")
    if is_artifact(folder):
        raise OptionError(f"{folder} is an artifact, for onnx; for torch, give its checkpoint")
    missing = _missing()
    if missing:
        raise OptionError(_advice(missing))
    return "torch"


def open_engine(folder: Path, options: EngineOptions) -> Engine:
    """The engine of an artifact or, with torch, of a checkpoint.

    Raises ArtifactError, CheckpointError, OptionError, OutOfMemory.
    """
    if is_artifact(folder):
        from qwink.engine.onnx import OnnxEngine

        return OnnxEngine(Artifact.load(folder), options.threads)
    from qwink.engine.torch.engine import TorchEngine

    return TorchEngine(folder, options.device, options.dtype, options.threads, options.quantize)


def describe_engines() -> dict[str, str]:
    """What each engine is for, and whether it can be used on this machine."""
    missing = _missing()
    gpu = "a GPU is here" if has_nvidia_gpu() else "no NVIDIA GPU found"
    torch = f"GPUs; {gpu}" if missing is None else f"GPUs; {_advice(missing)}"
    here = capabilities()
    advice = f"; {here.advice}" if here.advice else ""
    return {"onnx": f"CPUs; kernels: {here.kernels}{advice}", "torch": torch}


def _advice(missing: str) -> str:
    return f"the torch engine needs {missing}; install it with: {install_command('torch')}"


def _missing() -> str | None:
    """A package of the extra that is not installed, or None; found without importing it."""
    return next((name for name in ("torch", "transformers") if find_spec(name) is None), None)


def _gpu_usable() -> bool:
    if _missing() or not has_nvidia_gpu():
        return False
    from qwink.engine.torch.device import choose_device

    return choose_device("auto").type == "cuda"  # a build of PyTorch for CPUs has no CUDA
