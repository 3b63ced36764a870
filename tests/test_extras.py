"""Hints of what to install are commands that work here."""

from __future__ import annotations

import shlex
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from qwink import extras


@pytest.mark.parametrize(
    ("origin", "wanted"),
    [
        (None, ["qwink[serve]"]),
        (
            '{"url": "file:///home/me/my%20qwink", "dir_info": {"editable": true}}',
            ["--editable", "/home/me/my qwink[serve]"],
        ),
        ('{"url": "file:///src", "dir_info": {}}', ["/src[serve]"]),
        ('{"url": "https://x/q.whl", "archive_info": {}}', ["qwink[serve] @ https://x/q.whl"]),
        ("damaged", ["qwink[serve]"]),
    ],
)
def test_command(monkeypatch: pytest.MonkeyPatch, origin: str | None, wanted: list[str]) -> None:
    found: Any = SimpleNamespace(read_text=lambda _: origin)
    monkeypatch.setattr(extras, "distribution", lambda _: found)
    program, *rest = shlex.split(extras.install_command("serve"))
    assert program == sys.executable
    assert rest == ["-m", "pip", "install", *wanted]
