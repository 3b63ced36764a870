"""qwink answers questions about images in a wink, on hardware people already own.

import qwink

vlm = qwink.load("nano")
result = vlm.ask("receipt.jpg", "What is the total?")
print(result.text, result.timings.first_token_ms)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qwink.batches.batch import batch
    from qwink.errors import QwinkError
    from qwink.inputs.fetch import FetchPolicy
    from qwink.runtime.conversation import Conversation
    from qwink.runtime.memory import Memory
    from qwink.runtime.models import load
    from qwink.runtime.vlm import VLM
    from qwink.runtime.waiting import Limits
    from qwink.types import (
        Box,
        EncodedImage,
        Event,
        Message,
        Picture,
        Point,
        Result,
        SamplingParams,
        Timings,
        Usage,
        Video,
    )

__version__ = "0.1.0.dev0"

# Where each name lives. Loaded on first use, so that `import qwink` costs next to nothing.
_HOMES = {
    "Box": "qwink.types",
    "Conversation": "qwink.runtime.conversation",
    "EncodedImage": "qwink.types",
    "Event": "qwink.types",
    "FetchPolicy": "qwink.inputs.fetch",
    "Limits": "qwink.runtime.waiting",
    "Memory": "qwink.runtime.memory",
    "Message": "qwink.types",
    "Picture": "qwink.types",
    "Point": "qwink.types",
    "QwinkError": "qwink.errors",
    "Result": "qwink.types",
    "SamplingParams": "qwink.types",
    "Timings": "qwink.types",
    "Usage": "qwink.types",
    "VLM": "qwink.runtime.vlm",
    "Video": "qwink.types",
    "batch": "qwink.batches.batch",
    "load": "qwink.runtime.models",
}

__all__ = [
    "VLM",
    "Box",
    "Conversation",
    "EncodedImage",
    "Event",
    "FetchPolicy",
    "Limits",
    "Memory",
    "Message",
    "Picture",
    "Point",
    "QwinkError",
    "Result",
    "SamplingParams",
    "Timings",
    "Usage",
    "Video",
    "batch",
    "load",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'qwink' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
