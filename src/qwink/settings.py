"""Settings from environment variables. No other module reads the environment.

| variable | meaning |
|---|---|
| QWINK_HOME | folder for artifacts and caches; by default the user's cache folder |
| QWINK_MODEL | model used when none is named |
| QWINK_RECIPE | recipe used when none is named |
| QWINK_ENGINE | engine used when none is named: auto, onnx, torch |
| QWINK_DEVICE, QWINK_DTYPE | device and number type of the torch engine |
| QWINK_THREADS | threads of one computation; by default as many as physical cores |
| QWINK_STORE | URL of a Redis or Valkey in which several machines keep encoded images |
| QWINK_STORE_TTL, QWINK_STORE_ENTRY_MB | seconds that an entry lives; largest entry in MiB |
| QWINK_STORE_SECRET | text with which entries are encrypted and named |
| HF_HUB_CACHE, HF_HOME | where Hugging Face's tools keep checkpoints; qwink finds them there |
| HF_ENDPOINT | Hugging Face's hub, or a mirror of it |
| HF_TOKEN | access token for that hub; for private checkpoints and those with a licence |
| OTEL_EXPORTER_OTLP_ENDPOINT | where qwink serve sends traces, without --otel |
| MODELSCOPE_DOMAIN | ModelScope's hub: a domain, as its tools expect, or a URL |
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs

from qwink.errors import OptionError

_VARIABLES = tuple(
    f"QWINK_{name}"
    for name in (
        "HOME",
        "MODEL",
        "RECIPE",
        "ENGINE",
        "DEVICE",
        "DTYPE",
        "THREADS",
        "STORE",
        "STORE_TTL",
        "STORE_ENTRY_MB",
        "STORE_SECRET",
    )
)
# What Kubernetes adds for Services whose names begin with qwink, and what qwink's tests read.
_INJECTED = re.compile(
    r"QWINK_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)|QWINK_TEST_\w+"
)

STORE_ENTRY_MB = 64
HUGGING_FACE, MODELSCOPE = "https://huggingface.co", "https://www.modelscope.cn"


def environment() -> Mapping[str, str]:
    """All variables, for the server: they can set its options."""
    return os.environ


def without_usage_reports() -> None:
    """Let Ray report nothing about its use, unless its variable says so. Call it before ray.init"""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")


def without_ray_logs() -> None:
    """Let Ray's native code print nothing below fatal, unless its variable says so."""
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")


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
    store: str | None = field(default=None, repr=False)  # its URL may hold a password
    store_ttl: float | None = None  # seconds
    store_entry_mb: int = STORE_ENTRY_MB
    store_secret: str = field(default="", repr=False)
    hf_endpoint: str = HUGGING_FACE
    modelscope_endpoint: str = MODELSCOPE
    otel_endpoint: str | None = None
    hf_token: str | None = field(default=None, repr=False)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Raises OptionError for a value that cannot be used."""
        home = expand_user(environment.get("QWINK_HOME") or _cache_folder())
        if home.parts[:1] == ("~",):
            raise OptionError(
                "this user has no home folder to keep models in; set QWINK_HOME to a folder that "
                "qwink may write to"
            )
        hub = environment.get("HF_HOME") or "~/.cache/huggingface"
        threads = _count(environment, "QWINK_THREADS")
        return cls(
            home=home,
            hub_cache=expand_user(environment.get("HF_HUB_CACHE") or Path(hub) / "hub"),
            model=environment.get("QWINK_MODEL") or "nano",
            recipe=environment.get("QWINK_RECIPE") or "balanced",
            engine=environment.get("QWINK_ENGINE") or "auto",
            device=environment.get("QWINK_DEVICE") or "auto",
            dtype=environment.get("QWINK_DTYPE") or "auto",
            threads=threads,
            store=environment.get("QWINK_STORE") or None,
            store_ttl=_seconds(environment, "QWINK_STORE_TTL"),
            store_entry_mb=_count(environment, "QWINK_STORE_ENTRY_MB") or STORE_ENTRY_MB,
            store_secret=environment.get("QWINK_STORE_SECRET") or "",
            hf_endpoint=_url(environment.get("HF_ENDPOINT") or HUGGING_FACE),
            modelscope_endpoint=_url(environment.get("MODELSCOPE_DOMAIN") or MODELSCOPE),
            otel_endpoint=environment.get("OTEL_EXPORTER_OTLP_ENDPOINT") or None,
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
    def files(self) -> Path:
        """Folder of the server's files and batches."""
        return self.home / "files"

    @property
    def artifacts(self) -> Path:
        """Folder of the artifacts that were exported on first use."""
        return self.home / "artifacts"


def expand_user(path: str | Path) -> Path:
    """The path with the user's home folder in place of ~; unchanged where there is none."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def _cache_folder() -> str:
    try:
        return platformdirs.user_cache_dir("qwink")
    except RuntimeError:  # there is no home; its older versions return ~
        return "~"


def is_service_url(value: str) -> bool:
    """Whether it is what Kubernetes sets QWINK_PORT to for a Service called qwink."""
    return re.match(r"(tcp|udp|sctp)://", value) is not None


def unknown_variables(environment: Mapping[str, str], options: Iterable[str]) -> str:
    """One line about the QWINK_ variables that nothing reads; "" if there are none.

    `options` are the server's, which are variables too.
    """
    known = [*_VARIABLES, "QWINK_API_KEYS", *(f"QWINK_{name.upper()}" for name in options)]
    remarks = []
    for name in sorted(environment):
        if not name.startswith("QWINK_") or name in known or _INJECTED.fullmatch(name):
            continue
        close = difflib.get_close_matches(name, known, 1)
        advice = f"did you mean {close[0]}?" if close else "see qwink serve --help"
        remarks.append(f"qwink knows no variable {name}; {advice}")
    return " ".join(remarks)


def _count(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name) or None
    if text is not None and not (text.isdecimal() and int(text) > 0):
        raise OptionError(f"{name} is {text!r}; it must be a number above 0")
    return int(text) if text else None


def _seconds(environment: Mapping[str, str], name: str) -> float | None:
    text = environment.get(name) or None
    try:
        return None if text is None else float(text)
    except ValueError:
        raise OptionError(f"{name} is {text!r}; it must be a number of seconds") from None


def _url(value: str) -> str:
    """The URL, with https if it has no scheme, and without a final slash."""
    return (value if "://" in value else f"https://{value}").rstrip("/")
