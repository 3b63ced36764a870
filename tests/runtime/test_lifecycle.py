"""A model's life in real processes: closing frees it, and a child of a fork is told what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PATIENCE_S = 25

START = """
import gc, os, sys, time
import qwink

def load():
    return qwink.load(sys.argv[1], threads=2)

def ask(vlm):
    return vlm.ask(sys.argv[2], "What is this?", max_tokens=4, temperature=0)

def in_child(work):
    # Ends as a program does: what the interpreter holds is destroyed.
    child = os.fork()
    if child == 0:
        work()
        sys.exit(7)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == 7, code

def refused(vlm):
    for call in (lambda: ask(vlm), lambda: vlm.encode(sys.argv[2]), lambda: list(
        vlm.conversation().stream("Hi"))):
        try:
            call()
        except qwink.QwinkError as error:
            assert str(error) == "the model was loaded before fork; load it in the child", error
        else:
            raise AssertionError("a child of a fork was answered")
"""

CLOSE = """
def num_threads():
    return len(os.listdir("/proc/self/task"))

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

gc.disable()  # memory is freed without it
found = []
for number in range(13):
    vlm = load()
    ask(vlm)
    assert num_threads() > 1
    vlm.close()
    deadline = time.monotonic() + 60  # the system lists a thread shortly after its end, too
    while found and num_threads() > found[0][0] and time.monotonic() < deadline:
        time.sleep(0.01)
    found.append((num_threads(), resident()))
    try:
        vlm.engine
    except qwink.QwinkError as error:
        assert str(error) == "the model was closed; load it again", error
    else:
        raise AssertionError("a closed model still holds its engine")
    assert vlm.name
threads = {threads for threads, _ in found[1:]}
assert len(threads) == 1, found
assert found[-1][1] - found[2][1] < 40 << 20, found
"""

FORK_BEFORE = """
in_child(lambda: ask(load()))  # the parent has loaded nothing yet
assert ask(load()).text is not None
"""

FORK_BETWEEN = """
vlm = load()  # but nothing asked yet

def work():
    refused(vlm)
    vlm.close()
    gc.collect()

in_child(work)
first = ask(vlm).text

def again():
    global vlm
    refused(vlm)
    vlm = None
    gc.collect()
    with load() as other:
        assert ask(other).text == first

in_child(again)
in_child(lambda: None)  # the child ends without a word about the model
assert ask(vlm).text == first  # the parent goes on
"""

FORK_AFTER = """
vlm = load()
first = ask(vlm).text
vlm.close()

def work():
    global vlm
    vlm = None
    gc.collect()
    with load() as other:
        assert ask(other).text == first

in_child(work)
"""

FORK_DURING = """
vlm = load()
events = vlm.stream(sys.argv[2], "What is this?", max_tokens=200, task="describe")
next(events)

def work():
    refused(vlm)
    gc.collect()

for _ in range(3):
    in_child(work)
assert list(events)[-1].result is not None
"""

FORK_ENGINE = """
from qwink.engine.onnx import OnnxEngine
from qwink.runtime.models import find_artifact
from qwink.settings import Settings

engine = OnnxEngine(find_artifact(sys.argv[1], None, Settings.from_environment()), 2)

def work():  # destroying its sessions would wait for threads that are the parent's
    global engine
    del engine
    gc.collect()

in_child(work)
"""

FORKS = (FORK_BEFORE, FORK_BETWEEN, FORK_AFTER, FORK_DURING, FORK_ENGINE)


def run(code: str, checkpoint: Path, home: Path, picture: Path) -> None:
    command = [sys.executable, "-c", START + code, str(checkpoint), str(picture)]
    ours = {"QWINK_HOME": str(home), "TOKENIZERS_PARALLELISM": "false"}
    environment = {k: v for k, v in os.environ.items() if not k.startswith("QWINK_")} | ours
    ran = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted in /proc")
def test_closing_frees_threads_and_memory(
    tiny_checkpoint: tuple[Path, Any], tiny_home: Path, picture: Path
) -> None:
    run(CLOSE, tiny_checkpoint[0], tiny_home, picture)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.parametrize("code", FORKS)
def test_fork(code: str, tiny_checkpoint: tuple[Path, Any], tiny_home: Path, picture: Path) -> None:
    run(code, tiny_checkpoint[0], tiny_home, picture)
