"""Fixtures for all tests: a small random checkpoint, and `qwink` as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
from hypothesis import settings

# No deadline: tests must pass on a busy machine, and none asserts a time.
settings.register_profile("qwink", deadline=None)
settings.load_profile("qwink")


@dataclass(frozen=True)
class Ran:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


RunQwink = Callable[..., Ran]


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The folder of a small random checkpoint with tokenizer, and its model in Transformers."""
    # Imported here because PyTorch takes seconds to import.
    from tests.checkpoints import write_checkpoint
    from tests.tiny import write_tokenizer

    folder = tmp_path_factory.mktemp("checkpoints") / "tiny"
    write_tokenizer(folder)
    return folder, write_checkpoint(folder)


@pytest.fixture(scope="session")
def tiny_home(tiny_checkpoint: tuple[Path, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A QWINK_HOME with the tiny checkpoint's artifact. Tests must not change it."""
    home = tmp_path_factory.mktemp("home")
    ran = _run("export", str(tiny_checkpoint[0]), home=home)
    assert ran.code == 0, ran.err
    return home


@pytest.fixture
def qwink(tiny_checkpoint: tuple[Path, Any], tiny_home: Path) -> RunQwink:
    """`qwink(*arguments, stdin=, home=, limit_kib=)`; the tiny checkpoint is the default model.

    Further keywords are environment variables. `limit_kib` limits the size of written files.
    """

    def run(*arguments: object, **options: Any) -> Ran:
        defaults: dict[str, Any] = {"home": tiny_home, "QWINK_MODEL": str(tiny_checkpoint[0])}
        return _run(*arguments, **defaults | options)

    return run


@pytest.fixture(scope="session")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PNG of random pixels, 160 by 120."""
    path = tmp_path_factory.mktemp("pictures") / "noise.png"
    pixels = np.random.default_rng(0).integers(0, 256, (120, 160, 3), np.uint8)
    PIL.Image.fromarray(pixels).save(path)
    return path


def _run(
    *arguments: object,
    home: Path,
    stdin: bytes = b"",
    limit_kib: int | None = None,
    **environment: str,
) -> Ran:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("QWINK_")}
    command = [sys.executable, "-m", "qwink", *map(str, arguments)]
    if limit_kib is not None:
        command = ["bash", "-c", f'ulimit -f {limit_kib} && exec "$@"', "bash", *command]
    process = subprocess.run(
        command,
        input=stdin,
        env=inherited | {"QWINK_HOME": str(home), "PYTHONUTF8": "1"} | environment,
        capture_output=True,
        timeout=300,
        check=False,
    )
    return Ran(process.returncode, process.stdout.decode(), process.stderr.decode())
