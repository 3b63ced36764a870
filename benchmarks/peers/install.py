"""Installs a peer from its public packages and converts a checkpoint for it.

    python -m benchmarks.peers.install openvino --checkpoint standin [--home peers]

Makes `HOME/PEER/` with an environment, the converted model and `peer.json`, which the comparison
reads. When a step fails, `peer.json` holds the reason, and the comparison reports the peer as
absent. `--python` takes an environment that has the packages instead of making one. llama.cpp
decides by its compiler's options what it may use: `--cpu avx2` builds it for such processors, into
`HOME/llama.cpp/builds/avx2`, beside what an earlier call left.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from qwink.lab.peers.cap import CPUS
from qwink.lab.peers.contenders import BUILDS, installed

TORCH = "torch==2.13.0"  # exact, so that pip does not fetch a CUDA build of gigabytes
QUANTIZE = """
import sys, llama_cpp
source, target, kind, pure = sys.argv[1:]
options = llama_cpp.llama_model_quantize_default_params()
options.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind}")
options.pure = pure == "pure"
sys.exit(llama_cpp.llama_model_quantize(source.encode(), target.encode(), options))
"""
# What llama.cpp is told for each kind of processor; with AVX2 on its own, the rest is the default.
GGML = {
    "avx2": (),
    "avxvnni": ("AVX_VNNI",),
    "avx512": ("AVX_VNNI", "AVX512", "AVX512_VNNI", "AVX512_VBMI", "AVX512_BF16"),
}
BINDING = ("numpy", "diskcache", "jinja2", "typing-extensions")  # needed by llama-cpp-python
# Older GCC tells the optimiser that this instruction reads 8 of its 64 bytes. The writes of the
# other bytes are then removed, and AMX faults on an invalid configuration (GCC bug 114098).
TILE_CONFIG = """#pragma once
#ifdef __x86_64__
#include <immintrin.h>
#define _tile_loadconfig(p) __asm__ volatile("ldtilecfg %0" ::"m"(*(const char(*)[64])(p)))
#endif
"""


@dataclass(frozen=True)
class Site:
    """Where a peer is installed."""

    folder: Path
    checkpoint: Path
    python: str
    ready: bool  # `python` has the packages already
    cpus: tuple[str, ...] = ()  # kinds of processors to build for; empty: this one

    def run(self, *command: str | Path, **environment: str) -> None:
        print("$", *command, file=sys.stderr, flush=True)
        subprocess.run(
            [str(part) for part in command],
            check=True,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={**os.environ, "HF_HUB_OFFLINE": "1", **environment},
        )

    def pip(self, *arguments: str | Path, **environment: str) -> None:
        if not self.ready:
            self.run(self.python, "-m", "pip", "install", *arguments, **environment)


def transformers(site: Site) -> None:
    site.pip(TORCH, "transformers>=5,<6", "pillow")
    link = site.folder / "checkpoint"
    link.unlink(missing_ok=True)
    link.symlink_to(site.checkpoint, target_is_directory=True)


def openvino(site: Site) -> None:
    # The exporter does not know Transformers 5.
    site.pip(TORCH, "openvino-genai", "optimum-intel", "nncf", "transformers<5", "pillow")
    if not site.ready:
        # PyPI's torchvision fails on import with a CPU build of PyTorch, and is not needed here.
        site.run(site.python, "-m", "pip", "uninstall", "--yes", "torchvision")
    shutil.rmtree(site.folder / "int4", ignore_errors=True)
    site.run(
        *(Path(site.python).parent / "optimum-cli", "export", "openvino"),
        *("--model", site.checkpoint, "--task", "image-text-to-text"),
        *("--weight-format", "int4", "--group-size", "128", "--sym", "--ratio", "1.0"),
        site.folder / "int4",
    )


def llama_cpp(site: Site) -> None:
    """Needs a C++ compiler and cmake: built from the source distribution."""
    download = ("download", "--no-deps", "--no-binary=:all:", "llama-cpp-python")
    site.run(site.python, "-m", "pip", *download, "--dest", site.folder)
    archive = next(site.folder.glob("llama_cpp_python-*.tar.gz"))
    if not site.cpus:
        header = site.folder / "tile_config.h"
        header.write_text(TILE_CONFIG)
        site.pip(archive, CMAKE_ARGS=f"-DGGML_NATIVE=ON -DCMAKE_CXX_FLAGS=-include{header}")
    for cpu in site.cpus:
        build_for(site, cpu, archive)
    if not site.cpus or not list(site.folder.glob("text-*.gguf")):
        convert(site, archive)
    shutil.rmtree(site.folder / "source", ignore_errors=True)
    archive.unlink()


def build_for(site: Site, cpu: str, archive: Path) -> None:
    """A build that uses what processors of this kind have, whatever this one has.

    One build serves the Python binding and llama.cpp's own server.
    """
    target = site.folder / BUILDS / cpu
    shutil.rmtree(target, ignore_errors=True)
    # pip keeps what it built from an archive, whatever the options were.
    install = ("install", "--no-cache-dir", "--no-deps", "--target", target, archive)
    no_library = "-DLLAMA_BUILD=OFF -DLLAVA_BUILD=OFF"
    site.run(site.python, "-m", "pip", *install, CMAKE_ARGS=no_library)
    site.pip(*BINDING)
    build = target / "build"
    options = [
        "-DCMAKE_BUILD_TYPE=Release",
        "-DBUILD_SHARED_LIBS=ON",
        "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON",
        "-DCMAKE_INSTALL_RPATH=$ORIGIN",
        "-DLLAMA_OPENSSL=OFF",
        "-DGGML_NATIVE=OFF",
        *(f"-DGGML_{name}=ON" for name in GGML[cpu]),
    ]
    site.run("cmake", "-S", unpacked(site, archive), "-B", build, *options)
    targets = ("--target", "llama", "mtmd", "llama-server")
    site.run("cmake", "--build", build, "--parallel", str(os.cpu_count()), *targets)
    library = target / "llama_cpp" / "lib"
    library.mkdir(exist_ok=True)
    for file in (*(build / "bin").glob("*.so*"), build / "bin" / "llama-server"):
        shutil.copy(file, library, follow_symlinks=True)
    shutil.rmtree(build)


def unpacked(site: Site, archive: Path) -> Path:
    """llama.cpp's own sources, which the archive of the binding holds."""
    source = site.folder / "source"
    shutil.rmtree(source, ignore_errors=True)
    with tarfile.open(archive) as file:
        file.extractall(source, filter="data")
    return source / archive.name.removesuffix(".tar.gz") / "vendor" / "llama.cpp"


def convert(site: Site, archive: Path) -> None:
    """The checkpoint as GGUF files; the converter is part of the sources only."""
    site.pip(TORCH, "transformers<5", "sentencepiece", "pyyaml")
    tree = unpacked(site, archive)
    command: tuple[str | Path, ...] = (site.python, tree / "convert_hf_to_gguf.py")
    path = str(tree / "gguf-py")
    whole = site.folder / "text-bf16.gguf"
    site.run(*command, site.checkpoint, "--outtype=bf16", "--outfile", whole, PYTHONPATH=path)
    for kind in ("bf16", "q8_0"):
        target = site.folder / f"vision-{kind}.gguf"
        more = ("--mmproj", f"--outtype={kind}", "--outfile", target)
        site.run(*command, site.checkpoint, *more, PYTHONPATH=path)
    builds = sorted((site.folder / BUILDS).glob("*")) if site.cpus else []
    found = {"PYTHONPATH": str(builds[0])} if builds else {}
    for name, kind, pure in (
        ("Q4_0", "Q4_0", "mixed"),
        ("Q4_0-pure", "Q4_0", "pure"),
        ("Q4_K_M", "Q4_K_M", "mixed"),
    ):
        target = site.folder / f"text-{name}.gguf"
        site.run(site.python, "-c", QUANTIZE, whole, target, kind, pure, **found)
    whole.unlink()


PEERS: dict[str, Callable[[Site], None]] = {
    "transformers": transformers,
    "openvino": openvino,
    "llama.cpp": llama_cpp,
}


def install(
    peer: str,
    home: Path,
    checkpoint: Path,
    python: str | None = None,
    cpus: tuple[str, ...] = (),
) -> str | None:
    """Returns why the peer could not be installed; None when it was."""
    folder = (home / peer).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if cpus and python is None:  # builds are added to what there is
        python = installed(peer, home)[0]
    site = Site(
        *(folder, checkpoint.resolve(), python or str(folder / "env/bin/python")),
        *(python is not None, cpus),
    )
    reason = None
    try:
        if not site.ready:
            site.run(sys.executable, "-m", "venv", "--clear", folder / "env")
        PEERS[peer](site)
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or "").strip().splitlines() or ["no message"]
        reason = f"{Path(error.cmd[0]).name} {' '.join(error.cmd[1:3])} failed: {lines[-1].strip()}"
    except OSError as error:
        reason = str(error)
    record = {"python": site.python} if reason is None else {"absent": reason}
    (folder / "peer.json").write_text(json.dumps(record) + "\n")
    return reason


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--home", type=Path, default=Path("peers"))
    parser.add_argument("--python", help="of an environment that has the packages")
    parser.add_argument(
        "--cpu", action="append", choices=CPUS, default=[], help="build llama.cpp for these"
    )
    args = parser.parse_args(arguments)
    if args.cpu and args.peer != "llama.cpp":
        parser.error(f"--cpu: {args.peer} decides at run time; leave the option out")
    if not (args.checkpoint / "config.json").is_file():
        parser.error(f"{args.checkpoint} is no checkpoint; benchmarks/make_checkpoint.py makes one")
    cpus = tuple(dict.fromkeys(args.cpu))
    reason = install(args.peer, args.home, args.checkpoint, args.python, cpus)
    if reason is not None:
        sys.exit(reason)


if __name__ == "__main__":
    main()
