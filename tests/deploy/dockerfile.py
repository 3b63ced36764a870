"""Runs the steps of a Dockerfile without Docker: stages become folders, one after the other."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

# They change the system that an image starts from. Here they only say what they were asked for.
STUBS = ("apt-get", "useradd")
PATHS = re.compile(r"(?<![\w.:/])/(opt|src|var)\b")


@dataclass
class Stage:
    """One stage: its name, its instructions, and afterwards the folder that it left."""

    name: str
    steps: list[tuple[str, str]] = field(default_factory=list)
    folder: Path | None = None


def parse(text: str) -> list[Stage]:
    """The stages of a Dockerfile."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    stages: list[Stage] = []
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if not line.strip():
            continue
        word, rest = line.split(maxsplit=1)
        if word == "FROM":
            stages.append(Stage(rest.split(" AS ")[-1]))
        else:
            stages[-1].steps.append((word, rest))
    return stages


class Builder:
    """Runs stages in `root`, which stands for / and keeps its path from stage to stage."""

    def __init__(self, context: Path, folder: Path) -> None:
        self.context, self.root, self._folder = context, folder / "root", folder
        self.environment: dict[str, str] = {}
        self._stages: dict[str, Stage] = {}
        shims = folder / "shims"
        shims.mkdir(parents=True)
        self.calls = folder / "calls"
        for name in STUBS:
            self._write(shims / name, f'echo {name} "$@" >> {shlex.quote(str(self.calls))}')
        self._write(shims / "python", f'exec {shlex.quote(sys.executable)} "$@"')
        self._shims = shims

    @staticmethod
    def _write(path: Path, command: str) -> None:
        path.write_text(f"#!/bin/sh\n{command}\n")
        path.chmod(0o755)

    def build(self, stages: list[Stage]) -> None:
        """Run all stages; the last one stays in `root`."""
        for index, stage in enumerate(stages):
            self.root.mkdir()
            self.environment = {}
            place = self.root
            for word, rest in stage.steps:
                if word == "WORKDIR":
                    place = self._here(rest)
                    place.mkdir(parents=True, exist_ok=True)
                elif word == "COPY":
                    self._copy(shlex.split(rest), place)
                elif word == "ENV":
                    pairs = (pair.split("=", 1) for pair in shlex.split(rest))
                    self.environment |= {name: self.translate(value) for name, value in pairs}
                elif word == "RUN":
                    self._run(rest, place)
            if index < len(stages) - 1:
                stage.folder = self._folder / f"stage-{stage.name}"
                self._stages[stage.name] = stage
                self.root.rename(stage.folder)

    def translate(self, text: str) -> str:
        """Absolute paths of the image, below `root`."""
        return PATHS.sub(rf"{self.root}/\1", text)

    def _here(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def _copy(self, words: list[str], place: Path) -> None:
        source = self.context
        if words[0].startswith("--from="):
            folder = self._stages[words.pop(0).removeprefix("--from=")].folder
            assert folder is not None
            source = folder
        *names, target = words
        for name in names:
            found = source / name.lstrip("/")
            out = self._here(target) if target.startswith("/") else place / target
            if found.is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
                if source == self.context:
                    ignored = shutil.ignore_patterns("__pycache__", "*.pyc", "*.so")
                shutil.copytree(found, out, symlinks=True, dirs_exist_ok=True, ignore=ignored)
            else:
                shutil.copy2(found, out / found.name if target.endswith("/") else out)

    def _run(self, command: str, place: Path) -> None:
        keep = ("PATH", "HOME", "LANG", "PIP_", "SSL_", "HTTP", "http", "https", "no_proxy", "TMP")
        inherited = {k: v for k, v in os.environ.items() if k.startswith(keep)}
        path = f"{self._shims}{os.pathsep}{inherited['PATH']}"
        ran = subprocess.run(
            ["sh", "-ec", self.translate(command)],
            cwd=place,
            env=inherited | {"PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
