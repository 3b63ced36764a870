"""Server options: sources, precedence and checks."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from qwink.errors import OptionError
from qwink.server.options import ServerOptions, resolve
from tests.conftest import RunQwink


def test_flags_win_over_environment_over_file(tmp_path: Path) -> None:
    file = tmp_path / "qwink.toml"
    file.write_text('port = 1\nhost = "a"\nmax_running = 3\ngrace = 2\nwarm = ["x, y"]\n')
    environment = {"QWINK_PORT": "2", "QWINK_HOST": "b", "QWINK_ALLOW_URL_HOST": "c.org, d.org"}
    options = resolve({"port": 3, "host": None}, environment, file)
    assert (options.port, options.host, options.max_running) == (3, "b", 3)
    assert (options.grace, options.warm) == (2.0, ("x, y",))
    assert options.allow_url_host == ("c.org", "d.org")
    assert resolve({}, {}) == ServerOptions()


def test_environment() -> None:
    environment = {
        "QWINK_ALLOW_PUBLIC_URLS": "yes",
        "QWINK_WARM": "One, two.\nThree.",
        "QWINK_CACHE_DIR": "/cache",
        "QWINK_DISK_CACHE": "0",
        "QWINK_API_KEYS": "a,b\nc",
        "QWINK_HOME": "/not/an/option",
        "QWINK_GRACE": "",
    }
    options = resolve({}, environment)
    assert options.allow_public_urls
    assert not options.disk_cache
    assert options.warm == ("One, two.", "Three.")
    assert options.cache_dir == Path("/cache")
    assert options.api_keys == ("a", "b", "c")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prot = 1", "unknown key 'prot'"),
        ('port = "1"', "port is '1'; it must be int"),
        ("port = true", "port is True; it must be int"),
        ('warm = "x"', "it must be a list of strings"),
        ("warm = [1]", "it must be a list of strings"),
        ("api_keys = []", "api_keys must not be here"),
        ("port = 70000", "it must be between"),
        ("port = ", "cannot read"),
        ("max_running = 0", "it must be 1 or more"),
        ("request_timeout = 0", "it must be above 0"),
        ("grace = -1", "it must be 0 or more"),
    ],
)
def test_files_are_checked(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "qwink.toml"
    file.write_text(text)
    with pytest.raises(OptionError, match=message):
        resolve({}, {}, file)


@pytest.mark.parametrize(
    ("option", "value", "advice"),
    [
        *(
            ("allow_url_host", v, "write HOST")
            for v in ("https://x/", "*.x", "x:0", "", "x/", "a b")
        ),
        ("allow_url_host", "169.254.169.254", "never fetched from"),
        *(
            ("allow_origin", v, "write SCHEME://HOST")
            for v in (
                "https://x/",
                "x",
                "",
                "https://*.x",
                "https://X.org",
                "https://x:443",
                "http://x:80",
            )
        ),
        *(
            ("allow_host", v, "write NAME")
            for v in ("http://x:80", "x:80", "x/", "*", "*.x", "", "[::1]")
        ),
    ],
)
def test_options_that_can_never_match_are_refused(option: str, value: str, advice: str) -> None:
    with pytest.raises(OptionError, match=re.escape(f"{option} is {value!r}")) as caught:
        resolve({option: ("good.example" if option != "allow_origin" else "*", value)}, {})
    assert advice in str(caught.value)


def test_options_that_can_match_are_taken() -> None:
    options = resolve(
        {
            "allow_url_host": ("x.org", "x.org:8080", "[::1]:8080", "::1", "bücher.example"),
            "allow_origin": ("*", "null", "https://x.org", "http://[::1]:8080", "app://page"),
            "allow_host": ("x.org", "X.org", "my_host-1", "::1", "10.0.0.5"),
        },
        {},
    )
    assert len(options.allow_url_host) == len(options.allow_host) == 5


def test_environment_is_checked() -> None:
    for name, text in (("PORT", "x"), ("GRACE", "long"), ("DISK_CACHE", "maybe")):
        with pytest.raises(OptionError, match=f"QWINK_{name} is '{text}'"):
            resolve({}, {f"QWINK_{name}": text})


def test_key_files(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# comment\n\n one \ntwo\none\n")
    options = resolve({"api_key_file": file}, {"QWINK_API_KEYS": "two,three"})
    assert options.api_keys == ("two", "three", "one")
    assert "three" not in repr(options)
    file.write_text("# nothing\n")
    with pytest.raises(OptionError, match="holds no API key"):
        resolve({"api_key_file": file}, {})
    with pytest.raises(OptionError, match="cannot read the API keys"):
        resolve({"api_key_file": tmp_path / "none"}, {})


def test_print_config_is_a_config_without_secrets(qwink: RunQwink, tmp_path: Path) -> None:
    flags: list[Any] = ["serve", "--print-config", "--port", 9, "--warm", 'A "quoted"\tprompt']
    ran = qwink(*flags, "--no-disk-cache", QWINK_API_KEYS="secret-key")
    assert ran.code == 0
    assert "secret-key" not in ran.out
    values = tomllib.loads(ran.out)
    assert values["port"] == 9
    file = tmp_path / "again.toml"
    file.write_text(ran.out)
    options = resolve({}, {}, file)
    assert options.warm == ('A "quoted"\tprompt',)
    assert options.as_toml() == ran.out
