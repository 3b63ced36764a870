"""The options of `qwink serve`. Flags override the environment, which overrides a TOML file.

Every option has one name: `max_body_mb` is `--max-body-mb`, `QWINK_MAX_BODY_MB` and the TOML key
`max_body_mb`. A list is a repeated flag, a TOML array, or in the environment a text with commas
(for `warm`: with line breaks).
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from qwink.cache.address import StoreOptions, without_password
from qwink.errors import OptionError
from qwink.inputs.images import MAX_IMAGE_PIXELS
from qwink.runtime.drafting import SPECULATE
from qwink.runtime.memory import Memory
from qwink.settings import (
    STORE_ENTRY_MB,
    expand_user,
    is_service_url,
    unknown_variables,
)

# Secrets, and the options that name their files instead.
_SECRETS = {"api_keys": "api_key_file", "store_secret": "store_secret_file"}
_BY_LINE = "warm"
_ROUTING = ("picture", "load")
_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")
# Origins in the form that browsers send: lower case, no default port, no path.
_ORIGIN = re.compile(r"\*|null|(?!http://.*:80$|https://.*:443$)[a-z][a-z0-9+.-]*://[^/\sA-Z?#@*]+")
_HOST_NAME = re.compile(r"[\w-]+(?:\.[\w-]+)*|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*")


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Effective options of one server. Sizes in MB are MiB, times in seconds."""

    host: str = "127.0.0.1"
    port: int = 8000  # 0: any free port
    model: str | None = None
    engine: str | None = None
    recipe: str | None = None
    device: str | None = None
    dtype: str | None = None
    quantize: str | None = None
    threads: int | None = None
    context: int | None = None
    speculate: str = "auto"  # whether tokens are drafted: auto, off
    served_model_name: tuple[str, ...] = ()
    warm: tuple[str, ...] = ()  # system prompts prefilled at start

    max_running: int = 8
    max_waiting: int = 64
    request_timeout: float = 600.0
    grace: float = 30.0  # time for running answers to finish after SIGTERM

    api_keys: tuple[str, ...] = field(default=(), repr=False)
    api_key_file: Path | None = None
    open_metrics: bool = True  # /metrics needs no key
    allow_url_host: tuple[str, ...] = ()  # HOST: ports 80 and 443; HOST:PORT: that port
    allow_public_urls: bool = False  # ports 80 and 443 of all public hosts
    fetch_timeout: float = 15.0
    allow_origin: tuple[str, ...] = ()  # for pages of other sites, by CORS
    allow_host: tuple[str, ...] = ()  # further Host names accepted by a server without keys

    strict: bool = False  # refuse unknown fields of requests instead of ignoring them
    max_images: int = 100  # in one request
    max_image_pixels: int = MAX_IMAGE_PIXELS  # width × height; of a JPEG after halving its sides
    max_body_mb: int = 64
    body_timeout: float = 15.0  # plus one second for each 32 kB received
    send_timeout: float = 60.0  # time for a client to receive one piece of the response

    files_dir: Path | None = None  # files and batches; None: in QWINK_HOME, for `qwink serve`
    files_mb: int = 1024  # all files of one API key

    memory_mb: int | None = None  # for keys and values, images, uploads; None: Memory.default()
    disk_cache: bool = True
    cache_dir: Path | None = None
    disk_cache_mb: int = 4096
    # Shared by several servers; the URL may hold a password.
    store: str | None = field(default=None, repr=False)
    store_ttl: float | None = None
    store_entry_mb: int = STORE_ENTRY_MB
    store_secret: str | None = field(default=None, repr=False)
    store_secret_file: Path | None = None

    otel: str | None = None  # URL of a collector of traces, by OTLP over HTTP

    ray: str | None = None  # local, or the address of a Ray cluster; None: one process
    ray_name: str = "qwink"  # of the application on the cluster
    ray_routing: str = "picture"  # which replica gets a request: picture, load
    replicas: str = "1"  # N, or MIN-MAX for as many as the load asks

    def __post_init__(self) -> None:
        counts = (
            "threads",
            "context",
            "max_running",
            "max_waiting",
            "max_images",
            "max_image_pixels",
            "max_body_mb",
            "files_mb",
            "memory_mb",
            "disk_cache_mb",
            "store_entry_mb",
        )
        for name in counts:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"{name} is {value}; it must be 1 or more")
        if self.speculate not in SPECULATE:
            wanted = " or ".join(SPECULATE)
            raise OptionError(f"speculate is {self.speculate!r}; it must be {wanted}")
        if self.ray_routing not in _ROUTING:
            wanted = " or ".join(_ROUTING)
            raise OptionError(f"ray_routing is {self.ray_routing!r}; it must be {wanted}")
        if self.otel is not None and not re.match(r"https?://[^/\s]", self.otel):
            raise OptionError(
                f"otel is {self.otel!r}; it must be a URL such as http://127.0.0.1:4318"
            )
        if self.grace < 0:
            raise OptionError(f"grace is {self.grace}; it must be 0 or more")
        for name in ("request_timeout", "fetch_timeout", "body_timeout", "send_timeout"):
            if not 0 < getattr(self, name) < float("inf"):
                raise OptionError(f"{name} is {getattr(self, name)}; it must be above 0")
        if not 0 <= self.port <= 65535:
            raise OptionError(f"port is {self.port}; it must be between 0 and 65535")
        self._check_hosts()
        if self.store:
            store_of(self)
        elif self.store_ttl is not None:
            raise OptionError("store_ttl needs a store; give its URL as store")

    def _check_hosts(self) -> None:
        """Raises OptionError for hosts and origins that no request can match."""
        if self.allow_url_host:
            from qwink.inputs.hosts import parse_host  # imports an HTTP client, which is slow

            for host in self.allow_url_host:
                parse_host(host, "allow_url_host")
        for origin in self.allow_origin:
            if not _ORIGIN.fullmatch(origin):
                raise OptionError(
                    f"allow_origin is {origin!r}, which no browser sends; write SCHEME://HOST or "
                    "SCHEME://HOST:PORT in lower case, without path or default port, or *"
                )
        for name in self.allow_host:
            if not _HOST_NAME.fullmatch(name):
                raise OptionError(
                    f"allow_host is {name!r}, which is not a host name; write NAME without scheme, "
                    "port, path or *, such as pictures.example"
                )

    @property
    def max_body(self) -> int:
        return self.max_body_mb << 20

    def as_toml(self) -> str:
        """All options without keys, secrets and passwords; an unset option becomes a comment."""
        lines = []
        for option in fields(self):
            if option.name in _SECRETS:
                continue
            value = getattr(self, option.name)
            if option.name == "store" and value is not None:
                value = without_password(value)
            if value is None:
                lines.append(f"# {option.name} =")
            else:
                lines.append(f"{option.name} = {_toml(value)}")
        return "\n".join(lines) + "\n"


def memory_of(options: ServerOptions) -> Memory:
    """The memory budget of the options, divided into its parts."""
    return Memory.divide(options.memory_mb << 20) if options.memory_mb else Memory.default()


def store_of(options: ServerOptions) -> StoreOptions | None:
    """The shared store of the options. Raises OptionError."""
    if not options.store:
        return None
    secret = (options.store_secret or "").encode("utf-8", "surrogateescape")
    return StoreOptions(options.store, options.store_ttl, options.store_entry_mb << 20, secret)


def resolve(
    flags: Mapping[str, Any], environment: Mapping[str, str], file: Path | None = None
) -> ServerOptions:
    """Options from all sources: flags first, then environment, file and defaults.

    A flag that is None counts as not given. Raises OptionError for an unknown key, or a value of
    the wrong type or out of range.
    """
    values: dict[str, Any] = {}
    if file is not None:
        values |= _from_file(file)
    given = {name: value for name, value in flags.items() if value is not None}
    values |= _from_environment(environment, given) | given
    options = ServerOptions(**values)
    if options.api_key_file is not None:
        keys = (*options.api_keys, *_read_keys(options.api_key_file))
        values["api_keys"] = tuple(dict.fromkeys(keys))
    if options.store_secret_file is not None:
        values["store_secret"] = _read_secret(options.store_secret_file)
    return ServerOptions(**values)


def _from_file(path: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise OptionError(f"cannot read {path}: {error}") from None
    return from_document(str(path), document)


def from_document(where: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """Values of options from a TOML file or the like; `where` names it in errors.

    Raises OptionError for an unknown key or a value of the wrong type.
    """
    kinds = _kinds()
    values = {}
    for key, value in document.items():
        if key in _SECRETS:
            raise OptionError(f"{where}: {key} must not be here; use a file ({_SECRETS[key]})")
        if key not in kinds:
            raise OptionError(f"{where}: unknown key {key!r}; see qwink serve --print-config")
        values[key] = _from_toml(f"{where}: {key}", kinds[key], value)
    return values


def _from_toml(name: str, kind: str, value: Any) -> Any:
    if kind == "tuple" and isinstance(value, list) and all(isinstance(v, str) for v in value):
        return tuple(value)
    if kind == "Path" and isinstance(value, str):
        return expand_user(value)
    if kind == "float" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value).__name__ == kind:
        return value
    wanted = {"tuple": "a list of strings", "Path": "a string", "str": "a string"}.get(kind, kind)
    raise OptionError(f"{name} is {value!r}; it must be {wanted}")


def environment_warnings(flags: Mapping[str, Any], environment: Mapping[str, str]) -> list[str]:
    """Lines about variables that were ignored."""
    warnings = []
    port = environment.get("QWINK_PORT", "")
    if is_service_url(port) and flags.get("port") is None:
        warnings.append(
            f"QWINK_PORT is {port!r}, as Kubernetes sets it for a Service called qwink, and is "
            "ignored; set enableServiceLinks: false in the Pod, or give --port"
        )
    unknown = unknown_variables(environment, _kinds())
    return [*warnings, unknown] if unknown else warnings


def _from_environment(environment: Mapping[str, str], given: Mapping[str, Any]) -> dict[str, Any]:
    """Values of variables, except of those that a flag overrides, which are not even looked at."""
    values = {}
    for name, kind in _kinds().items():
        variable = f"QWINK_{name.upper()}"
        text = environment.get(variable)
        if name in given or (name == "port" and text and is_service_url(text)):
            continue
        if text:
            values[name] = _from_text(variable, name, kind, text)
    return values


def _from_text(variable: str, name: str, kind: str, text: str) -> Any:
    if kind == "tuple":
        parts = text.split("\n") if name == _BY_LINE else text.replace("\n", ",").split(",")
        return tuple(part.strip() for part in parts if part.strip())
    if kind == "Path":
        return expand_user(text)
    if kind == "str":
        return text
    if kind == "bool" and text.lower() in _TRUE + _FALSE:
        return text.lower() in _TRUE
    try:
        if kind in ("int", "float"):
            return int(text) if kind == "int" else float(text)
    except ValueError:
        pass
    what = "true or false" if kind == "bool" else "a number"
    raise OptionError(f"{variable} is {text!r}; it must be {what}")


def _read_keys(path: Path) -> list[str]:
    try:
        lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise OptionError(f"cannot read the API keys in {path}: {error}") from None
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise OptionError(f"{path} holds no API key; write one key per line")
    return keys


def _read_secret(path: Path) -> str:
    try:
        secret = path.read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise OptionError(f"cannot read the store's secret in {path}: {error}") from None
    if not secret:
        raise OptionError(f"{path} is empty; write the store's secret into it")
    return secret


def _kinds() -> dict[str, str]:
    """The type name of each option: str, int, float, bool, Path or tuple."""
    return {
        option.name: str(option.type).split(" |")[0].split("[")[0]
        for option in fields(ServerOptions)
    }


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str | Path):
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)
