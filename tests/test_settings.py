"""Settings from environment variables."""

from __future__ import annotations

from pathlib import Path

import platformdirs
import pytest

from qwink.errors import OptionError
from qwink.settings import Settings


def test_defaults() -> None:
    settings = Settings.from_environment({})
    assert settings.home == Path(platformdirs.user_cache_dir("qwink"))
    assert settings.artifacts == settings.home / "artifacts"
    assert settings.hub_cache == Path.home() / ".cache" / "huggingface" / "hub"
    assert (settings.model, settings.recipe, settings.threads) == ("nano", "balanced", None)


def test_all_variables() -> None:
    settings = Settings.from_environment(
        {
            "QWINK_HOME": "/data/qwink",
            "QWINK_MODEL": "Qwen/Qwen3-VL-2B-Instruct",
            "QWINK_RECIPE": "fast",
            "QWINK_ENGINE": "torch",
            "QWINK_DEVICE": "cuda:1",
            "QWINK_DTYPE": "float16",
            "QWINK_THREADS": "4",
            "HF_HUB_CACHE": "/data/hub",
            "HF_HOME": "/ignored",
            "HF_ENDPOINT": "https://mirror.example/",
            "HF_TOKEN": "secret",
            "MODELSCOPE_DOMAIN": "models.example",
        }
    )
    assert settings == Settings(
        home=Path("/data/qwink"),
        hub_cache=Path("/data/hub"),
        model="Qwen/Qwen3-VL-2B-Instruct",
        recipe="fast",
        engine="torch",
        device="cuda:1",
        dtype="float16",
        threads=4,
        hf_endpoint="https://mirror.example",
        modelscope_endpoint="https://models.example",
        hf_token="secret",
    )
    assert "secret" not in repr(settings)


def test_hub_cache_follows_hf_home() -> None:
    assert Settings.from_environment({"HF_HOME": "/hf"}).hub_cache == Path("/hf/hub")


def test_empty_means_unset() -> None:
    names = ("QWINK_HOME", "QWINK_MODEL", "QWINK_RECIPE", "QWINK_THREADS", "HF_HOME")
    empty = dict.fromkeys(names, "")
    assert Settings.from_environment(empty) == Settings.from_environment({})


def test_home_of_the_user() -> None:
    settings = Settings.from_environment({"QWINK_HOME": "~/q", "HF_HUB_CACHE": "~/h"})
    assert settings.home == Path.home() / "q"
    assert settings.hub_cache == Path.home() / "h"


@pytest.mark.parametrize("threads", ["0", "-1", "two", "1.5", "²"])
def test_invalid_threads(threads: str) -> None:
    with pytest.raises(OptionError, match=f"QWINK_THREADS is '{threads}'"):
        Settings.from_environment({"QWINK_THREADS": threads})
