"""Which internet addresses are public, private or neither.

The tables follow IANA's registries of special-purpose addresses (RFC 6890 and its successors) and
of multicast. Python's `ipaddress.is_global` is not used: its tables differ between versions.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address


def _networks4(*networks: str) -> tuple[IPv4Network, ...]:
    return tuple(map(IPv4Network, networks))


def _networks6(*networks: str) -> tuple[IPv6Network, ...]:
    return tuple(map(IPv6Network, networks))


_PRIVATE4 = _networks4(
    "10.0.0.0/8",  # private use, RFC 1918
    "127.0.0.0/8",  # loopback, RFC 1122
    "172.16.0.0/12",  # private use, RFC 1918
    "192.168.0.0/16",  # private use, RFC 1918
)
_PRIVATE6 = _networks6(
    "::1/128",  # loopback, RFC 4291
    "fc00::/7",  # unique local, RFC 4193
)
_SPECIAL4 = _PRIVATE4 + _networks4(
    "0.0.0.0/8",  # this network, RFC 791
    "100.64.0.0/10",  # shared by carriers' NAT, RFC 6598
    "169.254.0.0/16",  # link-local, RFC 3927: cloud providers give out credentials there
    "192.0.0.0/24",  # protocol assignments, RFC 6890
    "192.0.2.0/24",  # documentation, RFC 5737
    "192.88.99.0/24",  # 6to4 relays, RFC 7526
    "198.18.0.0/15",  # benchmarks, RFC 2544
    "198.51.100.0/24",  # documentation, RFC 5737
    "203.0.113.0/24",  # documentation, RFC 5737
    "224.0.0.0/4",  # multicast, RFC 5771
    "240.0.0.0/4",  # reserved, RFC 1112; broadcast, RFC 8190
)
# Parts of the special networks that the registry marks as globally reachable.
_REACHABLE4 = _networks4(
    "192.0.0.9/32",  # port control, RFC 7723
    "192.0.0.10/32",  # TURN, RFC 8155
)
_GLOBAL_UNICAST6 = IPv6Network("2000::/3")  # RFC 4291; nothing else is assigned for public hosts
_SPECIAL6 = _networks6(
    "2001::/23",  # protocol assignments, RFC 2928; Teredo, RFC 4380, is the first part
    "2001:db8::/32",  # documentation, RFC 3849
    "2002::/16",  # 6to4, RFC 3056: a router unpacks it to the IPv4 address inside
    "3fff::/20",  # documentation, RFC 9637
)
_REACHABLE6 = _networks6(
    "2001:1::1/128",  # port control, RFC 7723
    "2001:1::2/128",  # TURN, RFC 8155
    "2001:1::3/128",  # service registration, RFC 9665
    "2001:3::/32",  # multicast tunnels, RFC 7450
    "2001:4:112::/48",  # AS112 name servers, RFC 7535
    "2001:20::/28",  # host identities, RFC 7343
    "2001:30::/28",  # drones, RFC 9374
)
# Networks whose last 32 bits are an IPv4 address, which the packet reaches in the end.
_IPV4_INSIDE = _networks6(
    "::ffff:0:0/96",  # mapped, RFC 4291
    "64:ff9b::/96",  # NAT64, RFC 6052
)
_ISATAP = (0x00005EFE, 0x02005EFE)  # first half of an interface's id, RFC 5214


def is_public(address: str) -> bool:
    """Whether an address is reachable on the public internet and is no tunnel to another one.

    Raises ValueError if `address` is not an IPv4 or IPv6 address.
    """
    ip = _destination(address)
    if isinstance(ip, IPv4Address):
        return _in(ip, _REACHABLE4) or not _in(ip, _SPECIAL4)
    if ip not in _GLOBAL_UNICAST6 or (int(ip) >> 32) & 0xFFFFFFFF in _ISATAP:
        return False
    return _in(ip, _REACHABLE6) or not _in(ip, _SPECIAL6)


def is_private(address: str) -> bool:
    """Whether an address is this machine's loopback or in a private network (RFC 1918, 4193).

    Link-local and other special addresses are neither public nor private.
    Raises ValueError if `address` is not an IPv4 or IPv6 address.
    """
    ip = _destination(address)
    return _in(ip, _PRIVATE4 if isinstance(ip, IPv4Address) else _PRIVATE6)


def _in(
    ip: IPv4Address | IPv6Address, networks: tuple[IPv4Network, ...] | tuple[IPv6Network, ...]
) -> bool:
    return any(ip in network for network in networks)


def _destination(address: str) -> IPv4Address | IPv6Address:
    """The address, or the IPv4 address inside a mapped or translated one."""
    ip = ip_address(address.partition("%")[0])  # without the zone
    if isinstance(ip, IPv6Address) and _in(ip, _IPV4_INSIDE):
        return IPv4Address(ip.packed[12:])
    return ip
