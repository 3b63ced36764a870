"""Hosts that may be fetched from, as options name them: HOST or HOST:PORT."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address

import httpx

from qwink.errors import OptionError
from qwink.inputs.addresses import is_private, is_public

WEB_PORTS = frozenset({80, 443})  # of a host that is named without a port

_OPTION = re.compile(r"(?:\[(?P<address>[^][]+)\]|(?P<name>[^]:[]+))(?::(?P<port>[0-9]{1,5}))?")
_NAME = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")


@dataclass(frozen=True, slots=True)
class AllowedHost:
    """One host and its allowed ports. `name` is spelled as by `canonical`."""

    name: str
    ports: frozenset[int]

    def matches(self, host: str, port: int) -> bool:
        """Whether a URL's host and port are these. Other names of the same machine are not."""
        return port in self.ports and canonical(host) == self.name


def parse_host(text: str, option: str) -> AllowedHost:
    """Read HOST, which allows ports 80 and 443, or HOST:PORT, which allows that port only.

    HOST is a name or an address; an IPv6 address with a port is in brackets.
    Raises OptionError, naming `option`, for whatever no URL can match.
    """
    parts = _split(text)
    if parts is None:
        raise OptionError(
            f"{option} is {text!r}, which no URL matches; write HOST (ports 80 and 443) or "
            "HOST:PORT, without scheme, path or *, such as pictures.example or 10.0.0.5:8080"
        )
    name, port = parts
    address = _address(name)
    if address is not None and not (is_public(address) or is_private(address)):
        raise OptionError(
            f"{option} is {text!r}, an address of special use, which is never fetched from; "
            "name a host with a public or private address"
        )
    return AllowedHost(name, WEB_PORTS if port is None else frozenset({port}))


def _split(text: str) -> tuple[str, int | None] | None:
    """The canonical host and the port of HOST, HOST:PORT or an IPv6 address; None for others."""
    if _address(text):
        return canonical(text), None
    found = _OPTION.fullmatch(text)
    if found is None:
        return None
    host, port = canonical(found["address"] or found["name"]), found["port"]
    is_host = _NAME.fullmatch(host) if found["name"] else ":" in (_address(host) or "")
    if not is_host or (port is not None and not 0 < int(port) < 65536):
        return None
    return host, None if port is None else int(port)


def spell_host(host: str, port: int) -> str:
    """The shortest text that `parse_host` reads as this host with this port allowed."""
    if port in WEB_PORTS:
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def canonical(host: str) -> str:
    """A host as URLs spell it: lower case, punycode, no brackets, no final dot, short IPv6."""
    host = host.removeprefix("[").removesuffix("]").removesuffix(".").lower()
    address = _address(host)
    if address is not None:
        return address
    try:
        return httpx.URL(scheme="http", host=host).raw_host.decode("ascii")
    except (httpx.InvalidURL, ValueError):
        return host


def _address(host: str) -> str | None:
    """An IPv4 or IPv6 address in its shortest form; None for anything else."""
    try:
        return str(ip_address(host)) if "%" not in host else None
    except ValueError:
        return None
