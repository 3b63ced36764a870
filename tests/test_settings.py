"""What the environment says."""

from __future__ import annotations

from pathlib import Path

import platformdirs
import pytest

from qwink.errors import OptionError
from qwink.settings import Settings, unknown_variables


def test_defaults() -> None:
    settings = Settings.from_environment({})
    assert settings.home == Path(platformdirs.user_cache_dir("qwink"))
    assert settings.artifacts == settings.home / "artifacts"
    assert settings.hub_cache == Path.home() / ".cache" / "huggingface" / "hub"
    assert (settings.model, settings.recipe, settings.threads) == ("nano", "balanced", None)


def test_everything_can_be_said() -> None:
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
def test_impossible_threads(threads: str) -> None:
    with pytest.raises(OptionError, match=f"QWINK_THREADS is '{threads}'"):
        Settings.from_environment({"QWINK_THREADS": threads})


def test_no_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as for a user without an entry
    settings = Settings.from_environment({"QWINK_HOME": "/data"})
    assert settings.home == Path("/data")
    assert not settings.hub_cache.exists()
    with pytest.raises(OptionError, match="set QWINK_HOME to a folder"):
        Settings.from_environment({})


KUBERNETES = {
    "QWINK_SERVICE_HOST": "10.0.0.7",
    "QWINK_SERVICE_PORT": "8000",
    "QWINK_SERVICE_PORT_HTTP": "8000",
    "QWINK_PORT": "tcp://10.0.0.7:8000",
    "QWINK_PORT_8000_TCP": "tcp://10.0.0.7:8000",
    "QWINK_PORT_8000_TCP_PROTO": "tcp",
    "QWINK_PORT_8000_TCP_PORT": "8000",
    "QWINK_PORT_8000_TCP_ADDR": "10.0.0.7",
    "QWINK_METRICS_SERVICE_HOST": "10.0.0.8",  # a Service called qwink-metrics
    "QWINK_METRICS_PORT_9000_UDP_ADDR": "10.0.0.8",
}


def test_variables_of_kubernetes_and_of_others_are_no_typos() -> None:
    others = {"QWINK_TEST_BROWSER": "required", "QWINKLE": "1", "PATH": "/bin", "QWINK_HOME": "/x"}
    assert unknown_variables(KUBERNETES | others, ["port"]) == ""


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("QWINK_HOEM", "QWINK_HOME"),
        ("QWINK_THREAD", "QWINK_THREADS"),
        ("QWINK_MAX_BODY", "QWINK_MAX_BODY_MB"),
        ("QWINK_API_KEY", "QWINK_API_KEYS"),
    ],
)
def test_typos(name: str, nearest: str) -> None:
    found = unknown_variables({name: "1", "QWINK_MODEL": "nano"}, ["port", "max_body_mb"])
    assert found == f"qwink knows no variable {name}; did you mean {nearest}?"


def test_a_variable_like_no_other() -> None:
    assert "qwink serve --help" in unknown_variables({"QWINK_ZZZZZZZ": "1"}, ())
