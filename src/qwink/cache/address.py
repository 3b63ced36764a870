"""Where a shared store is, and its limits. Checked without importing the client."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from urllib.parse import parse_qsl, urlsplit

from qwink.errors import OptionError
from qwink.extras import install_command

_SCHEMES = ("redis", "rediss", "unix")
# What a URL may say behind its "?".
_QUERY = ("db", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname")


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """A shared store and its limits. Raises OptionError for values that cannot be used."""

    url: str = field(repr=False)
    """redis://[USER[:PASSWORD]@]HOST[:PORT][/DB], rediss://... with TLS, or unix://PATH."""
    ttl_s: float | None = None
    """Seconds after which an entry is removed. None: only when the server needs room."""
    max_entry_bytes: int = 64 << 20
    """Larger entries are neither written nor read."""
    secret: bytes = field(default=b"", repr=False)
    """Entries are encrypted and named with it. Empty: they are neither."""

    def __post_init__(self) -> None:
        if self.ttl_s is not None and not 1 <= self.ttl_s <= 1e9:
            raise OptionError(f"store_ttl is {self.ttl_s:g} s; it must be between 1 and 1e9")
        if self.max_entry_bytes < 1:
            raise OptionError("the largest entry of the store must be above 0 bytes")
        _check(self.url)

    @property
    def place(self) -> str:
        """The URL without user name and password."""
        return without_password(self.url)


def without_password(url: str) -> str:
    """The URL of a store without user name and password, to be shown."""
    scheme, _, rest = url.partition("://")
    server, slash, path = rest.partition("/")
    return f"{scheme}://{server.rpartition('@')[2]}{slash}{path}"


def _check(url: str) -> None:
    form = "write redis://HOST:6379, rediss://... for TLS, or unix:///PATH"
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # raises for a port that is no number
    except ValueError as error:
        raise OptionError(f"the store's URL is not valid ({error}); {form}") from None
    if parts.scheme not in _SCHEMES:
        raise OptionError(f"the store's URL begins with {parts.scheme!r}; {form}")
    if parts.scheme == "unix" and not parts.path:
        raise OptionError(f"the store's URL has no path; {form}")
    if parts.scheme != "unix" and parts.path.strip("/") and not parts.path.strip("/").isdecimal():
        raise OptionError(f"the store's URL names database {parts.path!r}; write a number")
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in _QUERY:
            known = ", ".join(_QUERY)
            raise OptionError(f"the store's URL has the option {name!r}; known are {known}")
        if name == "db" and not value.isdecimal():
            raise OptionError(f"the store's URL has db={value!r}; write a number")
        if name.startswith("ssl_") and parts.scheme != "rediss":
            raise OptionError(f"the store's URL has the option {name}; write rediss://... for TLS")
    if find_spec("redis") is None:
        command = install_command("redis")
        raise OptionError(f"the store needs the package redis; install it with: {command}")
