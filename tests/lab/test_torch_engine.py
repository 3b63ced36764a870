"""The torch benchmark runs from end to end, on a CPU and a small checkpoint."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def test_it_runs(tiny_checkpoint: tuple[Path, Any], tmp_path: Path) -> None:
    out = tmp_path / "torch.json"
    options = ["--device", "cpu", "--batches", "1,3", "--tokens", "3", "--rounds", "1"]
    command = [sys.executable, "-m", "qwink.lab.torch_engine", str(tiny_checkpoint[0])]
    command += [*options, "--side", "64", "--text", "20", "--out", str(out)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    result = json.loads(out.read_text())
    assert result["engine"] == {"engine": "torch", "device": "cpu", "dtype": "float32"}
    assert result["same_first_token"]
    for side in ("qwink", "transformers"):
        assert result[side]["first_token_ms"] > 0
        assert set(result[side]["decode_step_ms"]) == {"1", "3"}
    assert result["facts"]["hardware"]["accelerator"] is None
    assert set(result["speedup"]["decode_step"]) == {"1", "3"}
