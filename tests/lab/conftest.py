"""Configurations of published checkpoints, and nano."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from qwink.model.config import ModelConfig, load_config

PUBLISHED = Path(__file__).parents[2] / "benchmarks" / "published"


@pytest.fixture(scope="session")
def published_2b(tmp_path_factory: pytest.TempPathFactory) -> ModelConfig:
    """The configuration of Qwen3-VL-2B."""
    folder = tmp_path_factory.mktemp("published") / "Qwen3-VL-2B-Instruct"
    folder.mkdir()
    shutil.copy(PUBLISHED / "config-2b.json", folder / "config.json")
    return load_config(folder)
