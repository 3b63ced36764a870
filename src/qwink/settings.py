"""What the environment says. The only module that reads it.

| variable | meaning |
|---|---|
| QWINK_HOME | folder for artifacts and caches; by default the user's cache folder |
| QWINK_MODEL | model used when none is named |
| QWINK_RECIPE | recipe used when none is named |
| QWINK_THREADS | threads of one computation; by default the physical cores |
| HF_HUB_CACHE, HF_HOME | where Hugging Face's tools keep checkpoints; they are found there |
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from qwink.errors import OptionError


@dataclass(frozen=True, slots=True)
class Settings:
    """Defaults of one process."""

    home: Path
    hub_cache: Path
    model: str = "nano"
    recipe: str = "balanced"
    threads: int | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Raises OptionError for a value that makes no sense."""
        home = environment.get("QWINK_HOME") or platformdirs.user_cache_dir("qwink")
        hub = environment.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
        threads = environment.get("QWINK_THREADS")
        if threads is not None and not (threads.isdecimal() and int(threads) > 0):
            raise OptionError(f"QWINK_THREADS is {threads!r}; it must be a number above 0")
        return cls(
            home=Path(home).expanduser(),
            hub_cache=Path(environment.get("HF_HUB_CACHE") or Path(hub) / "hub").expanduser(),
            model=environment.get("QWINK_MODEL") or "nano",
            recipe=environment.get("QWINK_RECIPE") or "balanced",
            threads=int(threads) if threads else None,
        )

    @property
    def artifacts(self) -> Path:
        """Where artifacts are kept that were exported on first use."""
        return self.home / "artifacts"
