"""qwink where there is no home, no room, no UTF-8, or what Kubernetes adds to the environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Ran, RunQwink
from tests.server.process import Serve, ask, starter, user
from tests.test_settings import KUBERNETES

SHORT = ("--max-tokens", "4", "--temperature", "0")

# A user without an entry in the table of users, as containers often have.
NO_ENTRY = """
import pwd
def getpwuid(number):
    raise KeyError(number)
pwd.getpwuid = getpwuid
from qwink.__main__ import main
main()
"""
# Every write into one folder fails, as it does for root only on such a disk.
FAILING = """
import os, sys
folder, number = sys.argv.pop(1), int(sys.argv.pop(1))
def hook(event, arguments):
    if event == "os.mkdir" and str(arguments[0]).startswith(folder):
        raise OSError(number, os.strerror(number), str(arguments[0]))
    if event == "open" and str(arguments[0]).startswith(folder) and arguments[2] & 3:
        raise OSError(number, os.strerror(number), str(arguments[0]))
sys.addaudithook(hook)
from qwink.__main__ import main
main()
"""


def run(code: str, *arguments: object, **environment: str) -> Ran:
    inherited = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("QWINK_", "HOME", "XDG_", "HF_"))
    }
    command = [sys.executable, "-c", code, *map(str, arguments)]
    ran = subprocess.run(
        command, env=inherited | environment, capture_output=True, timeout=300, check=False
    )
    return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())


@pytest.fixture
def serve(tiny_checkpoint: tuple[Path, Any], tiny_home: Path, tmp_path: Path) -> Iterator[Serve]:
    yield from starter(tiny_checkpoint[0], tiny_home, tmp_path)


def test_qwink_home_suffices_without_a_home(
    tiny_checkpoint: tuple[Path, Any], tiny_home: Path, picture: Path
) -> None:
    arguments = ("ask", picture, "-q", "Hi", "--model", tiny_checkpoint[0], *SHORT)
    ran = run(NO_ENTRY, *arguments, QWINK_HOME=str(tiny_home))
    assert ran.code == 0, ran.err


@pytest.mark.parametrize(
    "arguments",
    [("ask", "-q", "Hi"), ("models",), ("export", "nano"), ("serve",), ("pull", "a/b")],
    ids=lambda arguments: arguments[0],
)
def test_without_any_home_the_way_out_is_named(arguments: tuple[str, ...]) -> None:
    ran = run(NO_ENTRY, *arguments, **({"QWINK_PORT": "0"} if arguments == ("serve",) else {}))
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1, ran.err
    assert "set QWINK_HOME to a folder that qwink may write to" in ran.err


def test_a_home_of_an_unknown_user_is_a_folder_that_is_not_there() -> None:
    ran = run(NO_ENTRY, "ask", "-q", "Hi", "--model", "~nobody-here/model", QWINK_HOME="/nowhere")
    assert ran.code == 1
    assert "no model '~nobody-here/model'" in ran.err


@pytest.mark.parametrize(
    ("number", "words"), [(30, "Read-only file system"), (13, "Permission denied"), (28, "")]
)
@pytest.mark.parametrize("command", ["ask", "export", "serve"])
def test_a_home_that_takes_nothing(
    tiny_checkpoint: tuple[Path, Any], tmp_path: Path, command: str, number: int, words: str
) -> None:
    model = str(tiny_checkpoint[0])
    arguments = {
        "ask": ("-q", "Hi", "--model", model),
        "export": (model,),
        "serve": ("--port", "0", "--model", model),
    }[command]
    home = str(tmp_path / "home")
    ran = run(FAILING, home, number, command, *arguments, QWINK_HOME=home)
    assert ran.code == 1
    last = ran.err.splitlines()[-1]
    assert last.startswith("qwink: ")
    assert words in last
    assert "QWINK_HOME" in last
    assert ("--out" in last) == (command == "export")
    assert "Traceback" not in ran.err


def test_a_read_only_home_with_a_model_in_it_serves(
    tiny_checkpoint: tuple[Path, Any], tiny_home: Path
) -> None:
    arguments = ("ask", "-q", "Hi", "--model", tiny_checkpoint[0], *SHORT)
    ran = run(FAILING, tiny_home, 30, *arguments, QWINK_HOME=str(tiny_home))
    assert ran.code == 0, ran.err


@pytest.mark.parametrize(
    "locale",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "POSIX"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"LANG": "xx_YY.none", "LC_ALL": ""},
    ],
    ids=str,
)
def test_other_locales(qwink: RunQwink, tmp_path: Path, picture: Path, locale: Any) -> None:
    named = tmp_path / "收据.png"
    named.write_bytes(picture.read_bytes())
    environment = {"PYTHONUTF8": ""} | locale
    ran = qwink("ask", named, "-q", "这是什么? é", *SHORT, **environment)
    assert ran.code == 0, ran.err
    gone = qwink("ask", tmp_path / "没有.png", "-q", "Hi", **environment)
    assert gone.code == 1
    assert "Traceback" not in gone.err
    assert len(gone.err.splitlines()) == 1


def test_variables_of_kubernetes(serve: Serve) -> None:
    server = serve(**KUBERNETES).wait_ready()  # with --port 0
    with server.client() as client:
        assert ask(client, user("Hi")).choices
    assert server.stop() == 0
    assert "QWINK" not in "".join(server.printed) + server.log


def test_port_of_kubernetes_without_a_port_of_ours(qwink: RunQwink) -> None:
    ran = qwink("serve", "--print-config", **KUBERNETES)
    assert ran.code == 0
    assert "port = 8000\n" in ran.out
    assert len(ran.err.splitlines()) == 1
    assert "QWINK_PORT is 'tcp://10.0.0.7:8000'" in ran.err
    assert "--port" in ran.err


def test_a_flag_is_enough_where_the_variable_is_nonsense(qwink: RunQwink) -> None:
    ran = qwink("serve", "--print-config", "--max-body-mb", "3", QWINK_MAX_BODY_MB="lots")
    assert "max_body_mb = 3" in ran.out
    assert qwink("serve", "--print-config", QWINK_MAX_BODY_MB="lots").code == 2


def test_typos_are_noticed(qwink: RunQwink, serve: Serve) -> None:
    warning = "qwink: warning: qwink knows no variable QWINK_HOEM; did you mean QWINK_HOME?"
    ran = qwink("models", QWINK_HOEM="/data")
    assert (ran.code, ran.err) == (0, f"{warning}\n")
    server = serve(QWINK_HOEM="/data").wait_ready()
    assert server.stop() == 0
    assert "".join(server.printed).count(warning) == 1
    assert qwink("models", QWINK_MAX_BODY_MB="3").err == ""  # the server's
