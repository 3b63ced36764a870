"""Recipes compared with `exact` on synthetic input, with nano."""

from __future__ import annotations

from pathlib import Path

from qwink.lab.record import read
from qwink.lab.verify import synthetic
from qwink.runtime.models import find_artifact
from qwink.settings import Settings


def test_exact_has_no_noise_and_recipes_have_some(nano_settings: Settings, tmp_path: Path) -> None:
    exact, quality = (
        find_artifact("nano", name, nano_settings).folder for name in ("exact", "quality")
    )
    out = tmp_path / "quality.json"
    artifacts = [f"--artifact=exact={exact}", f"--artifact=quality={quality}"]
    synthetic.main([f"--exact={exact}", *artifacts, f"--out={out}"])
    found = read(out)
    assert found.kind == "quality"
    recipes = found.measured["recipes"]
    for phase in ("prefill", "decode"):
        assert recipes["exact"][phase] == {"snr_db": 120.0, "top1_agreement": 1.0, "kl_nats": 0.0}
        assert 10 < recipes["quality"][phase]["snr_db"] < 60
        assert recipes["quality"][phase]["kl_nats"] > 0
