"""The work of a plain service's process, and the function that runs the process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from qwink.errors import OptionError, QwinkError
from qwink.extras import install_command
from qwink.lab.ladder.answers import RungAnswer
from qwink.lab.ladder.questions import Question
from qwink.lab.ladder.rungs import Plain


@dataclass(frozen=True, slots=True)
class ServiceJob:
    """A checkpoint's folder, the device and options to run it with, and the questions."""

    checkpoint: str
    device: str
    threads: int | None
    service: Plain
    questions: tuple[Question, ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ServiceJob:
        """The inverse of `to_json`."""
        values: dict[str, Any] = json.loads(text)
        values["service"] = Plain(**values["service"])
        values["questions"] = tuple(Question(**question) for question in values["questions"])
        return cls(**values)


def missing() -> str | None:
    """The reason why plain services cannot run here; None if they can."""
    lacking = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if not lacking:
        return None
    return f"needs {' and '.join(lacking)}; install with: {install_command('torch')}"


def accelerator(device: str) -> str | None:
    """The name of a GPU; None for the CPU. Raises OptionError when PyTorch cannot use it."""
    if device == "cpu":
        return None
    code = "import sys, torch; print(torch.cuda.get_device_name(sys.argv[1]))"
    ran = subprocess.run(
        [sys.executable, "-c", code, device], capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise OptionError(f"PyTorch cannot use {device} here; --device cpu tries the ladder")
    return ran.stdout.strip()


def run(job: ServiceJob) -> Iterator[RungAnswer]:
    """Start the process and yield its answers; it ends when the iterator is closed.

    Raises QwinkError if the process fails.
    """
    with TemporaryDirectory() as folder:
        told = Path(folder, "job.json")
        told.write_text(job.to_json(), "utf-8")
        command = [sys.executable, "-m", "qwink.lab.ladder.torch_service", str(told), folder]
        complaints = Path(folder, "stderr")
        with (
            complaints.open("w") as stderr,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process,
        ):
            assert process.stdout is not None
            try:
                for number, line in enumerate(process.stdout):
                    yield _answer(json.loads(line), Path(folder, f"{number}.npz"))
                process.wait()
            finally:
                process.kill()  # if the caller closes the iterator early
        if process.returncode < 0:
            raise QwinkError(
                f"the plain service's process was ended by signal {-process.returncode}; "
                "in fp32 a model needs four bytes of memory for each parameter, and room to work"
            )
        if process.returncode:
            lines = complaints.read_text("utf-8", "replace").strip().splitlines() or ["no message"]
            raise QwinkError(f"the plain service's process failed: {lines[-1]}")


def _answer(values: dict[str, Any], path: Path) -> RungAnswer:
    with np.load(path) as arrays:
        logits, image = arrays["logits"], arrays["image"]
    path.unlink()
    tokens = tuple(values.pop("tokens"))
    return RungAnswer(**values, tokens=tokens, logits=logits, image=image)
