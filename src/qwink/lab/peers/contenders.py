"""The engines that are compared, their settings, and where each is installed."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qwink.lab.peers.cap import Cap

FOLDER = "{folder}"  # in options: where `install` put the peer's files
BUILDS = "builds"  # in a peer's folder: packages compiled for one kind of processor each


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to run a peer. `options` are its adapter's arguments, without the threads.

    `best`: part of the main comparison, since no other setting was faster in all respects.
    `apart`: takes turns with the first of ours alone, since memory does not hold all at once.
    """

    name: str
    peer: str
    options: dict[str, Any]
    best: bool = False
    apart: bool = False
    adapter: str = ""  # empty: that of the peer in ADAPTERS


@dataclass(frozen=True, slots=True)
class Contender:
    """A setting that can be started: `python -m qwink.lab.peers.ADAPTER`."""

    name: str
    peer: str
    adapter: str
    python: str
    options: dict[str, Any]
    apart: bool = False
    variables: dict[str, str] = field(default_factory=dict)  # added to its environment
    packages: Path | None = None  # found before those of its Python


OURS = "qwink"
COMPILED = ("llama.cpp",)  # peers whose compiler decides which instructions they use
ADAPTERS = {
    OURS: "qwink_peer",
    "transformers": "transformers_peer",
    "openvino": "openvino_peer",
    "llama.cpp": "llama_peer",
}


def _openvino(precision: str, group: int | None = None, **more: Any) -> dict[str, Any]:
    properties = {"INFERENCE_PRECISION_HINT": precision, **more}
    if group is not None:
        properties["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = group
    return {"model": f"{FOLDER}/int4", "properties": properties}


def _llama(text: str, projector: str, **more: Any) -> dict[str, Any]:
    model, vision = f"{FOLDER}/text-{text}.gguf", f"{FOLDER}/vision-{projector}.gguf"
    return {"model": model, "projector": vision, **more}


CHECKPOINT = f"{FOLDER}/checkpoint"
SETTINGS = (
    Setting("transformers-bf16", "transformers", {"model": CHECKPOINT, "dtype": "bfloat16"}, True),
    Setting(
        "transformers-fp32", "transformers", {"model": CHECKPOINT, "dtype": "float32"}, True, True
    ),
    # The first is best for the first token, the second for decoding.
    Setting("openvino-int4", "openvino", _openvino("bf16", 128), True),
    Setting("openvino-int4-f32", "openvino", _openvino("f32", 128), True, True),
    Setting("openvino-int4-default-group", "openvino", _openvino("bf16")),
    Setting("openvino-int4-no-group", "openvino", _openvino("bf16", 0)),
    Setting("openvino-int4-sdpa", "openvino", _openvino("bf16", 128, ATTENTION_BACKEND="SDPA")),
    # The usual Q4_0 has the output matrix in 6 bits; "pure" has all in 4, as our `fast` does.
    Setting("llama.cpp-Q4_0", "llama.cpp", _llama("Q4_0", "bf16"), True),
    Setting("llama.cpp-Q4_0-pure", "llama.cpp", _llama("Q4_0-pure", "bf16"), True),
    Setting("llama.cpp-Q4_K_M", "llama.cpp", _llama("Q4_K_M", "bf16")),
    Setting("llama.cpp-vision-q8_0", "llama.cpp", _llama("Q4_0", "q8_0")),
    Setting("llama.cpp-no-flash", "llama.cpp", _llama("Q4_0", "bf16", flash_attention=False)),
    Setting("llama.cpp-no-repack", "llama.cpp", _llama("Q4_0", "bf16", repack=False)),
)


# For many pictures at once. OpenVINO's scheduler runs a whole prompt, or parts of prompts, beside
# the answers. llama.cpp's slots share a step.
CROWDS = (
    *(
        Setting(
            f"openvino-int4-{precision}-8{'' if split else '-whole'}",
            "openvino",
            {**_openvino(precision, 128), "running": 8, "split": split},
            adapter="openvino_crowd",
        )
        for precision in ("bf16", "f32")
        for split in (True, False)
    ),
    *(
        Setting(
            f"llama.cpp-{text}-{running}",
            "llama.cpp",
            {**_llama(text, "bf16"), "running": running},
            adapter="llama_crowd",
        )
        for text, running in (("Q4_0", 8), ("Q4_0-pure", 8), ("Q4_0-pure", 4))
    ),
)


def ours(artifacts: Sequence[str], cap: Cap | None = None) -> list[Contender]:
    """qwink in this environment, for each `NAME=FOLDER`."""
    pairs = [item.partition("=") for item in artifacts]
    variables = cap.variables if cap else {}
    return [
        Contender(
            *(name, OURS, ADAPTERS[OURS], sys.executable, {"model": folder}), variables=variables
        )
        for name, _, folder in pairs
    ]


def installed(peer: str, home: Path, cap: Cap | None = None) -> tuple[str | None, str]:
    """The peer's Python, or None and the reason why it is absent."""
    record = home / peer / "peer.json"
    how = f"python -m benchmarks.peers.install {peer}"
    if not record.is_file():
        return None, f"not installed: {how}"
    found = json.loads(record.read_text("utf-8"))
    if cap and peer in COMPILED and not _build(peer, home, cap).is_dir():
        return None, f"not built for {cap.cpu}: {how} --cpu {cap.cpu}"
    return found.get("python"), found.get("absent", "")


def contender(
    setting: Setting, home: Path, python: str, apart: bool = False, cap: Cap | None = None
) -> Contender:
    options = {
        key: value.replace(FOLDER, str((home / setting.peer).resolve()))
        if isinstance(value, str)
        else value
        for key, value in setting.options.items()
    }
    return Contender(
        *(setting.name, setting.peer, setting.adapter or ADAPTERS[setting.peer], python, options),
        apart=apart or setting.apart,
        variables=cap.variables if cap else {},
        packages=_build(setting.peer, home, cap) if cap and setting.peer in COMPILED else None,
    )


def _build(peer: str, home: Path, cap: Cap) -> Path:
    return (home / peer / BUILDS / cap.cpu).resolve()
