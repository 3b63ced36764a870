"""Everything qwink raises on purpose.

QwinkError
├── ImageError            the picture cannot be used
│   ├── ImageTooLarge     more pixels than the limit
│   └── FetchError        the picture could not be fetched
├── CheckpointError       a checkpoint folder is missing something, damaged or of another kind
├── ArtifactError         an artifact folder does not load, or could not be written
├── ModelNotFound         a model reference leads nowhere
│   └── DownloadError     a checkpoint could not be downloaded
├── PromptError           the conversation cannot be turned into a prompt
│   └── ContextOverflow   more tokens than the context holds
├── OptionError           an option's value is out of range or cannot be honoured (a ValueError)
├── GenerationError       the model produced something that is not a number
├── OutOfMemory           a device's memory does not suffice
└── RequestEnded          the request did not come to its end
    ├── Overloaded        too many requests are waiting
    ├── Cancelled         nobody waits for the answer any more
    ├── DeadlineExceeded  the answer took longer than allowed
    └── EngineStopped     nothing runs any more

Each message names the cause and the way out, in one line.
"""

from __future__ import annotations


class QwinkError(Exception):
    """Base of all errors raised on purpose."""


class ImageError(QwinkError):
    """The picture cannot be used. `index` tells which of a conversation's it is, from 0."""

    index: int | None = None


class ImageTooLarge(ImageError):
    """The picture has more pixels than the limit."""


class FetchError(ImageError):
    """The picture could not be fetched."""


class CheckpointError(QwinkError):
    """A checkpoint folder is missing something, damaged or of another kind."""


class ArtifactError(QwinkError):
    """An artifact folder does not load, or could not be written."""


class ModelNotFound(QwinkError):
    """A model reference leads nowhere."""


class DownloadError(ModelNotFound):
    """A checkpoint could not be downloaded."""


class PromptError(QwinkError):
    """The conversation cannot be turned into a prompt."""


class ContextOverflow(PromptError):
    """The prompt has more tokens than the context holds."""

    def __init__(self, num_tokens: int, limit: int) -> None:
        self.num_tokens, self.limit = num_tokens, limit
        super().__init__(
            f"the prompt has {num_tokens} tokens but only {limit} fit; "
            "shorten the text, use fewer pictures or a smaller budget (max_pixels)"
        )


class OptionError(QwinkError, ValueError):
    """An option's value is out of range or cannot be honoured."""


class GenerationError(QwinkError):
    """The model produced something that is not a number."""


class OutOfMemory(QwinkError):
    """A device's memory does not suffice for what was asked of it."""


class RequestEnded(QwinkError):
    """The request did not come to its end."""


class Overloaded(RequestEnded):
    """Too many requests are waiting."""


class Cancelled(RequestEnded):
    """Nobody waits for the answer any more."""


class DeadlineExceeded(RequestEnded):
    """The answer took longer than allowed."""


class EngineStopped(RequestEnded):
    """Nothing runs any more."""
