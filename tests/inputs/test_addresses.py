"""Addresses: the registries' own examples, borders of the ranges, and IPv4 inside IPv6."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwink.inputs.addresses import is_private, is_public

PRIVATE = (
    "10.0.0.0", "10.0.0.1", "10.255.255.255", "127.0.0.1", "127.9.9.9", "127.255.255.255",
    "172.16.0.0", "172.31.255.255", "192.168.0.0", "192.168.1.1", "192.168.255.255",
    "::1", "fc00::1", "fd12:3456::1", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    "::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1",
)  # fmt: skip
NEITHER = (
    "0.0.0.0", "0.1.2.3", "0.255.255.255", "100.64.0.0", "100.64.0.1", "100.127.255.255",
    "169.254.0.0", "169.254.169.254", "169.254.255.255",
    # Python 3.11.7 takes some of these for global.
    "192.0.0.0", "192.0.0.8", "192.0.0.11", "192.0.0.170", "192.0.0.171", "192.0.0.192",
    "192.0.0.255", "192.0.2.0", "192.0.2.255", "192.88.99.1", "192.88.99.255",
    "198.18.0.0", "198.19.255.255", "198.51.100.1", "203.0.113.1", "203.0.113.255",
    "224.0.0.1", "239.1.1.1", "239.255.255.255", "240.0.0.1", "255.255.255.254",
    "255.255.255.255",
    "::", "::2", "::7f00:1", "::8.8.8.8", "fe80::1", "fe80::1%eth0", "febf::1", "fec0::1",
    "ff02::1", "ff0e::1", "100::1", "100:0:0:1::1", "5f00::1", "4000::1", "1fff:ffff::1",
    "::ffff:169.254.169.254", "::ffff:0.0.0.0", "::ffff:192.0.0.192", "::ffff:0:127.0.0.1",
    "64:ff9b::169.254.169.254", "64:ff9b::192.88.99.1", "64:ff9b:1::1", "64:ff9b:1::808:808",
    "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:1::", "2001:1::4", "2001:2::1",
    "2001:4:111::1", "2001:10::1", "2001:1f:ffff::1", "2001:40::1", "2001:1ff:ffff::1",
    "2001:db8::1", "2002::1", "2002:7f00:1::", "2002:808:808::1", "2002:ffff:ffff::1",
    "3fff::1", "3fff:fff:ffff::1",
    "2606:4700::5efe:10.0.0.1", "2606:4700::200:5efe:127.0.0.1",
)  # fmt: skip
PUBLIC = (
    "1.0.0.0", "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0",
    "126.255.255.255", "128.0.0.1", "169.253.255.255", "169.255.0.0", "172.15.255.255",
    "172.32.0.1", "191.255.255.255", "192.0.0.9", "192.0.0.10", "192.0.1.0", "192.0.3.0",
    "192.31.196.1", "192.52.193.1", "192.88.98.255", "192.88.100.0", "192.167.255.255",
    "192.169.0.0", "192.175.48.1", "198.17.255.255", "198.20.0.0", "198.51.99.255",
    "198.51.101.0", "203.0.112.255", "203.0.114.0", "223.255.255.255",
    "2000::1", "2001:1::1", "2001:1::2", "2001:1::3", "2001:3::1", "2001:4:112::1", "2001:20::1",
    "2001:2f:ffff::1", "2001:30::1", "2001:200::1", "2001:4860:4860::8888", "2001:db7::1",
    "2001:db9::1", "2003::1", "2606:4700::1111", "2620:4f:8000::1", "3ffe::1", "3fff:1000::1",
    "64:ff9b::8.8.8.8", "::ffff:8.8.8.8", "::ffff:192.0.0.9",
)  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_private(address: str) -> None:
    assert is_private(address)
    assert not is_public(address)


@pytest.mark.parametrize("address", NEITHER)
def test_neither(address: str) -> None:
    assert not is_private(address)
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public(address: str) -> None:
    assert is_public(address)
    assert not is_private(address)


@given(st.ip_addresses(v=4))
def test_ipv4_inside_ipv6_counts_as_ipv4(address: IPv4Address) -> None:
    for prefix in ("::ffff:", "64:ff9b::"):
        assert is_public(f"{prefix}{address}") == is_public(str(address))
        assert is_private(f"{prefix}{address}") == is_private(str(address))
    tunnels = (f"2002:{int(address) >> 16:x}:{int(address) & 0xFFFF:x}::1", f"::{address}")
    assert not any(map(is_public, tunnels))


@pytest.mark.parametrize(
    "text", ["", "example.com", "1.2.3", "0x7f.0.0.1", "127.0.0.1:80", "[::1]"]
)
def test_what_is_no_address(text: str) -> None:
    for check in (is_public, is_private):
        with pytest.raises(ValueError, match=r"does not appear to be"):
            check(text)
