"""Internet addresses: which are public, which are of this machine or its own network."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_GLOBAL_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")  # how networks without IPv4 reach it (RFC 6052)
_PRIVATE4 = tuple(
    IPv4Network(network)
    for network in ("10.0.0.0/8", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
)
_PRIVATE6 = (IPv6Network("::1/128"), IPv6Network("fc00::/7"))


def is_public(address: str) -> bool:
    """Whether an address belongs to the public internet and hides no other one within."""
    ip = _inner(address)
    if isinstance(ip, IPv4Address):
        return ip.is_global and not ip.is_multicast and not ip.is_reserved
    # 6to4 and Teredo carry an IPv4 address, to which routers would unpack them.
    tunnel = ip.sixtofour is not None or ip.teredo is not None
    return ip in _GLOBAL_UNICAST and ip.is_global and not tunnel


def is_private(address: str) -> bool:
    """Whether an address is of this machine or a private network (RFC 1918, RFC 4193).

    Link-local ones, behind which clouds hand out credentials, are neither public nor private.
    """
    ip = _inner(address)
    networks = _PRIVATE4 if isinstance(ip, IPv4Address) else _PRIVATE6
    return any(ip in network for network in networks)


def _inner(address: str) -> IPv4Address | IPv6Address:
    """The address itself, or the IPv4 address that a mapped or translated one stands for."""
    ip = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv4Address):
        return ip
    if ip in _NAT64:
        return IPv4Address(ip.packed[12:])
    return ip.ipv4_mapped or ip
