"""Hosts as options name them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwink.errors import OptionError
from qwink.inputs.hosts import WEB_PORTS, parse_host, spell_host


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("example.com", "example.com"),
        ("EXAMPLE.com.", "example.com"),
        ("Bücher.Example.", "xn--bcher-kva.example"),
        ("xn--bcher-kva.example", "BÜCHER.example"),
        ("my_host-1", "my_host-1"),
        ("localhost", "localhost"),
        ("10.0.0.5", "10.0.0.5"),
        ("::1", "::1"),
        ("[::1]", "0:0:0:0:0:0:0:1"),
        ("FD00::0:1", "fd00::1"),
        ("2130706433", "2130706433"),
    ],
)
def test_a_host_allows_the_web_ports(text: str, host: str) -> None:
    allowed = parse_host(text, "hosts")
    assert [
        port for port in (1, 22, 79, 80, 81, 443, 8080, 65535) if allowed.matches(host, port)
    ] == [
        80,
        443,
    ]
    for other in ("www.example.com", "example.org", "127.0.0.1", "::2", ""):
        assert not allowed.matches(other, 80)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("example.com:8080", "example.com", 8080),
        ("example.com:80", "example.com", 80),
        ("10.0.0.5:1", "10.0.0.5", 1),
        ("[::1]:65535", "::1", 65535),
    ],
)
def test_a_host_with_port_allows_that_port(text: str, host: str, port: int) -> None:
    allowed = parse_host(text, "hosts")
    assert allowed.ports == {port}
    assert allowed.matches(host, port)
    assert not allowed.matches(host, 443)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "https://x/", "http://x", "//x", "x/", "x/path", "*", "*.x", "*.a.b", "x.*",
        ".x", ".", "a..b", "x:", "x:0", "x:65536", "x:99999", "x:123456", "x:-1", "x:http",
        "x:80:80", "x:８０", ":80", ":", "x y", " x", "x\n", "x,y", "user@x", "x?y", "x#y", "a%b",
        "[x]", "[]", "[10.0.0.5]", "[::1", "::1]", "[::1]x", "[fe80::1%eth0]", "x\\y", "<x>",
    ],
)  # fmt: skip
def test_what_no_url_matches_is_refused(text: str) -> None:
    with pytest.raises(
        OptionError, match=r"^hosts is .*which no URL matches; write HOST "
    ) as caught:
        parse_host(text, "hosts")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["169.254.169.254", "0.0.0.0:80", "[fe80::1]", "224.0.0.1", "::"])
def test_addresses_that_are_never_fetched_from_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match="an address of special use, which is never fetched from"):
        parse_host(text, "hosts")


@given(
    host=st.sampled_from(["example.com", "10.0.0.5", "::1", "xn--bcher-kva.example"]),
    port=st.integers(1, 65535),
)
def test_spelling_is_what_parsing_reads(host: str, port: int) -> None:
    allowed = parse_host(spell_host(host, port), "hosts")
    assert allowed.matches(host, port)
    assert allowed.ports == (WEB_PORTS if port in WEB_PORTS else {port})
