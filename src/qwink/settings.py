"""What the environment says. The only module that reads it.

| variable | meaning |
|---|---|
| QWINK_HOME | folder for artifacts and caches; by default the user's cache folder |
| QWINK_MODEL | model used when none is named |
| QWINK_RECIPE | recipe used when none is named |
| QWINK_ENGINE | engine used when none is named: auto, onnx, torch |
| QWINK_DEVICE, QWINK_DTYPE | where and with which type of number the torch engine computes |
| QWINK_THREADS | threads of one computation; by default the physical cores |
| HF_HUB_CACHE, HF_HOME | where Hugging Face's tools keep checkpoints; they are found there |
| HF_ENDPOINT | Hugging Face's hub, or a mirror of it |
| HF_TOKEN | proves to that hub who you are; for private checkpoints and those with a licence |
| MODELSCOPE_DOMAIN | ModelScope's hub, as its own tools spell it, or a URL |
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs

from qwink.errors import OptionError

HUGGING_FACE, MODELSCOPE = "https://huggingface.co", "https://www.modelscope.cn"


def environment() -> Mapping[str, str]:
    """All of it, for the server, whose options can be set there too."""
    return os.environ


@dataclass(frozen=True, slots=True)
class Settings:
    """Defaults of one process."""

    home: Path
    hub_cache: Path
    model: str = "nano"
    recipe: str = "balanced"
    engine: str = "auto"
    device: str = "auto"
    dtype: str = "auto"
    threads: int | None = None
    hf_endpoint: str = HUGGING_FACE
    modelscope_endpoint: str = MODELSCOPE
    hf_token: str | None = field(default=None, repr=False)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Raises OptionError for a value that makes no sense."""
        home = environment.get("QWINK_HOME") or platformdirs.user_cache_dir("qwink")
        hub = environment.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
        threads = environment.get("QWINK_THREADS") or None
        if threads is not None and not (threads.isdecimal() and int(threads) > 0):
            raise OptionError(f"QWINK_THREADS is {threads!r}; it must be a number above 0")
        return cls(
            home=Path(home).expanduser(),
            hub_cache=Path(environment.get("HF_HUB_CACHE") or Path(hub) / "hub").expanduser(),
            model=environment.get("QWINK_MODEL") or "nano",
            recipe=environment.get("QWINK_RECIPE") or "balanced",
            engine=environment.get("QWINK_ENGINE") or "auto",
            device=environment.get("QWINK_DEVICE") or "auto",
            dtype=environment.get("QWINK_DTYPE") or "auto",
            threads=int(threads) if threads else None,
            hf_endpoint=_url(environment.get("HF_ENDPOINT") or HUGGING_FACE),
            modelscope_endpoint=_url(environment.get("MODELSCOPE_DOMAIN") or MODELSCOPE),
            hf_token=environment.get("HF_TOKEN") or None,
        )

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints are kept that `qwink pull` downloaded."""
        return self.home / "checkpoints"

    @property
    def images(self) -> Path:
        """Where encoded images are kept."""
        return self.home / "images"

    @property
    def artifacts(self) -> Path:
        """Where artifacts are kept that were exported on first use."""
        return self.home / "artifacts"


def _url(value: str) -> str:
    """With https where no scheme is named, and without a final slash."""
    return (value if "://" in value else f"https://{value}").rstrip("/")
