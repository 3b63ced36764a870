"""Options of `qwink serve` for Ray that cannot be honoured."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT_RAY = """
import sys
sys.modules["ray"] = None
from qwink.__main__ import main
main()
"""


def serve(*arguments: str, code: str = "from qwink.__main__ import main; main()") -> str:
    """What the command says on stderr; it must fail."""
    command = [sys.executable, "-c", code, "serve", "--port", "0", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode in (1, 2), ran.stderr
    assert "Traceback" not in ran.stderr
    return ran.stderr


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        (("--replicas", "2"), "add --ray local"),
        (("--ray-routing", "load"), "add --ray local"),
        (("--ray", "local", "--replicas", "4-1"), "replicas is '4-1'"),
        (("--ray", "local", "--ray-routing", "luck"), "ray_routing is 'luck'"),
    ],
)
def test_what_cannot_be_honoured_is_refused(flags: tuple[str, ...], wanted: str) -> None:
    assert wanted in serve(*flags)


def test_without_ray_it_says_how_to_install_it() -> None:
    said = serve("--ray", "local", code=WITHOUT_RAY)
    assert "the server needs ray" in said
    assert "serve,ray]" in said
