"""How to install an optional part of qwink, the way that qwink itself was installed."""

from __future__ import annotations

import json
import shlex
import sys
from importlib.metadata import PackageNotFoundError, distribution
from urllib.parse import unquote, urlsplit


def install_command(extra: str) -> str:
    """A command for the shell, for the environment that this Python belongs to."""
    try:
        text = distribution("qwink").read_text("direct_url.json")
        origin = json.loads(text) if text else {}
    except (PackageNotFoundError, ValueError):
        origin = {}
    wanted = [f"qwink[{extra}]"]
    url = str(origin.get("url", ""))
    if "dir_info" in origin and url.startswith("file:"):  # a checkout
        wanted = [f"{unquote(urlsplit(url).path)}[{extra}]"]
        if origin["dir_info"].get("editable"):
            wanted.insert(0, "--editable")
    elif url:
        wanted = [f"qwink[{extra}] @ {url}"]
    return shlex.join([sys.executable, "-m", "pip", "install", *wanted])
