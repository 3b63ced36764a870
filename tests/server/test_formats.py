"""The server reads every format that docs/formats.md lists."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.inputs.pictures import FORMATS, sample
from tests.server.process import ask, data_url, user


@pytest.mark.parametrize("kind", FORMATS)
def test_pictures_of_each_format(client: openai.OpenAI, kind: str) -> None:
    """Whatever type the data URL names: the bytes decide."""
    part: Any = {"type": "image_url", "image_url": {"url": data_url(sample(kind))}}
    answer = ask(client, user(part, "Which colours?"), max_tokens=1)
    assert answer.usage.prompt_tokens_details.image_tokens > 0
