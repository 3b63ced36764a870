"""The package as a whole: what it exports, and who may import whom."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import qwink

SOURCE = Path(qwink.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
# Imports go down, or stay at their level; never up.
LEVELS = (
    ("types", "errors", "settings", "signals", "extras", "native"),
    ("inputs", "cache", "model"),
    ("export", "engine", "hub"),
    ("runtime",),
    ("batches",),
    ("server",),
    ("cluster", "lab"),
    ("cli",),
    ("__main__",),
)
# They run as separate processes.
TORCH_PROGRAMS = {
    ("lab", "ladder", "torch_service"),
    ("lab", "peers", "transformers_peer"),
    ("lab", "torch_engine"),
}
# The commands that measure; nothing else outside of the lab may import it.
MEASURING = {("cli", "bench"), ("cli", "verify"), ("cli", "comparison")}
# Shared by all measurements; they import no measurement.
SHARED = {"facts", "statistics", "record", "quality"}
LEVEL_OF = {part: level for level, parts in enumerate(LEVELS) for part in parts}


def names(path: Path) -> tuple[str, ...]:
    """("engine", "onnx") for src/qwink/engine/onnx.py; () for the package itself."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""
            if node.module == "qwink":
                yield from (f"qwink.{alias.name}" for alias in node.names)


def our_imports(path: Path) -> set[str]:
    """The parts of qwink that a file imports: types, engine, ..."""
    parts = {name.split(".")[1] for name in imports(path) if name.startswith("qwink.")}
    return parts & set(LEVEL_OF)


def their_imports(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imports(path)} - {"qwink"}


def test_all_is_what_can_be_imported() -> None:
    assert set(qwink.__all__) == set(qwink._HOMES)
    assert len(qwink.__all__) == len(set(qwink.__all__))
    for name in qwink.__all__:
        assert getattr(qwink, name).__name__ == name
    assert set(qwink.__all__) <= set(dir(qwink))
    with pytest.raises(AttributeError):
        _ = qwink.nonsense


@pytest.mark.parametrize("path", MODULES, ids=lambda path: ".".join(names(path)) or "qwink")
def test_imports_go_one_way(path: Path) -> None:
    name = names(path)
    if not name:  # the package itself looks names up in the runtime
        assert "cli" not in our_imports(path)
        return
    assert name[0] in LEVEL_OF, f"{name[0]} is new: say in LEVELS where it belongs"
    for part in our_imports(path):
        assert LEVEL_OF[part] <= LEVEL_OF[name[0]], f"{'.'.join(name)} must not import {part}"
    if name[0] in ("types", "errors"):
        assert not our_imports(path)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: ".".join(names(path)) or "qwink")
def test_nothing_that_answers_imports_the_lab(path: Path) -> None:
    name = names(path)
    if name[:1] == ("lab",):
        assert "server" not in our_imports(path)  # its clients come over HTTP
    elif name[:2] not in MEASURING:
        assert "lab" not in our_imports(path)


@pytest.mark.parametrize("name", sorted(SHARED))
def test_what_measurements_share_imports_no_measurement(name: str) -> None:
    found = {
        module.split(".")[2]
        for module in imports(SOURCE / "lab" / f"{name}.py")
        if module.startswith("qwink.lab.")
    }
    assert found <= SHARED


def test_parts_do_not_depend_on_each_other_in_circles() -> None:
    graph: dict[str, set[str]] = {part: set() for part in LEVEL_OF}
    for path in MODULES:
        if names(path):
            graph[names(path)[0]] |= our_imports(path) - {names(path)[0]}
    while graph:
        free = {part for part, needs in graph.items() if not needs & set(graph)}
        assert free, f"these import each other in a circle: {sorted(graph)}"
        for part in free:
            del graph[part]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: ".".join(names(path)) or "qwink")
def test_heavy_libraries_stay_where_they_belong(path: Path) -> None:
    name, libraries = names(path), their_imports(path)
    if name[:2] != ("engine", "torch") and name not in TORCH_PROGRAMS:
        assert not libraries & {"torch", "transformers"}
    if name[:1] != ("cli",):
        assert not libraries & {"typer", "rich", "click"}
    if name[:1] not in (("server",), ("cluster",)):
        assert not libraries & {"fastapi", "starlette", "uvicorn", "aiohttp"}


def test_only_settings_reads_the_environment() -> None:
    readers = {
        names(path)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")
    }
    # The engine sets what onnxruntime takes in no other way.
    assert readers <= {("settings",), ("engine",), ("engine", "onnx")}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: ".".join(names(path)) or "qwink")
def test_modules_say_what_they_are_for(path: Path) -> None:
    code = path.read_text("utf-8")
    assert not code.strip() or ast.get_docstring(ast.parse(code))


def run(code: str, *arguments: str, **environment: str) -> None:
    subprocess.run([sys.executable, "-c", code, *arguments], env=environment, check=True)


def test_import_costs_next_to_nothing() -> None:
    run("import sys, qwink; assert not {'numpy', 'onnxruntime', 'torch'} & set(sys.modules)")


def test_the_command_line_loads_no_measurement_before_it_is_asked_for() -> None:
    run("import sys, qwink.cli; assert not any(m.startswith('qwink.lab') for m in sys.modules)")


def test_nothing_is_written_outside_of_qwink_home(
    tiny_checkpoint: tuple[Path, Any], tiny_home: Path, tmp_path: Path
) -> None:
    # onnxruntime from 1.29 keeps a device id and a queue of events to upload in the cache folder.
    code = "import sys, qwink; qwink.load(sys.argv[1]).ask(None, 'Hi', max_tokens=1)"
    run(code, str(tiny_checkpoint[0]), HOME=str(tmp_path), QWINK_HOME=str(tiny_home))
    assert list(tmp_path.iterdir()) == []


def test_answer_needs_no_torch(
    tiny_checkpoint: tuple[Path, Any], tiny_home: Path, tmp_path: Path, picture: Path
) -> None:
    # Once with the export, once without.
    code = (
        "import sys, qwink\n"
        "result = qwink.load(sys.argv[1]).ask(sys.argv[2], 'What is this?', max_tokens=4)\n"
        "assert result.usage.completion_tokens, result\n"
        "heavy = {'torch', 'transformers', 'typer', 'rich', 'safetensors.torch'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    for home in (tmp_path, tiny_home):
        run(code, str(tiny_checkpoint[0]), str(picture), QWINK_HOME=str(home))
