"""Settings from environment variables. No other module reads the environment.

| variable | meaning |
|---|---|
| QWINK_HOME | folder for artifacts and caches; by default the user's cache folder |
| QWINK_MODEL | model used when none is named |
| QWINK_RECIPE | recipe used when none is named |
| QWINK_ENGINE | engine used when none is named: auto, onnx, torch |
| QWINK_DEVICE, QWINK_DTYPE | device and number type of the torch engine |
| QWINK_THREADS | threads of one computation; by default as many as physical cores |
| HF_HUB_CACHE, HF_HOME | where Hugging Face's tools keep checkpoints; qwink finds them there |
| HF_ENDPOINT | Hugging Face's hub, or a mirror of it |
| HF_TOKEN | access token for that hub; for private checkpoints and those with a licence |
| MODELSCOPE_DOMAIN | ModelScope's hub: a domain, as its tools expect, or a URL |
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
    """All variables, for the server: they can set its options."""
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
        """Raises OptionError for a value that cannot be used."""
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
        """Folder of the checkpoints that `qwink pull` downloaded."""
        return self.home / "checkpoints"

    @property
    def images(self) -> Path:
        """Folder of encoded images."""
        return self.home / "images"

    @property
    def artifacts(self) -> Path:
        """Folder of the artifacts that were exported on first use."""
        return self.home / "artifacts"


def _url(value: str) -> str:
    """The URL, with https if it has no scheme, and without a final slash."""
    return (value if "://" in value else f"https://{value}").rstrip("/")
