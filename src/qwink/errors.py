"""The exceptions that qwink raises on purpose.

QwinkError
├── ImageError            the picture cannot be used
│   ├── ImageTooLarge     more pixels than the limit
│   └── FetchError        the picture could not be fetched
├── CheckpointError       a checkpoint folder is incomplete, damaged or of another kind
├── ArtifactError         an artifact folder does not load, or could not be written
├── ModelNotFound         there is no model of that name
│   └── DownloadError     a checkpoint could not be downloaded
├── PromptError           the conversation cannot be turned into a prompt
│   └── ContextOverflow   more tokens than the context holds
├── OptionError           an option's value is out of range or cannot be honoured (a ValueError)
│   └── ShapeError        the shape of an answer is not valid, too large, or allows no answer
├── GenerationError       the model produced something that is not a number
├── OutOfMemory           a device has too little memory
└── RequestEnded          the request ended without an answer
    ├── Overloaded        too many requests are waiting
    ├── Cancelled         the caller cancelled the request
    ├── DeadlineExceeded  the answer took longer than allowed
    └── EngineStopped     the engine has stopped

Each message names the cause and the way out, in one line.
"""

from __future__ import annotations


class QwinkError(Exception):
    """Base of all errors raised on purpose."""


class ImageError(QwinkError):
    """The picture cannot be used. `index` is its place among a conversation's pictures, from 0."""

    index: int | None = None


class ImageTooLarge(ImageError):
    """The picture has more pixels than the limit."""


class FetchError(ImageError):
    """The picture could not be fetched."""


class CheckpointError(QwinkError):
    """A checkpoint folder is incomplete, damaged or of another kind."""


class ArtifactError(QwinkError):
    """An artifact folder does not load, or could not be written."""


class ModelNotFound(QwinkError):
    """There is no model of that name."""


class DownloadError(ModelNotFound):
    """A checkpoint could not be downloaded."""


class PromptError(QwinkError):
    """The conversation cannot be turned into a prompt."""


class ContextOverflow(PromptError):
    """The prompt has more tokens than the context holds."""

    def __init__(self, num_tokens: int, limit: int, *, at_least: bool = False) -> None:
        """`at_least`: the prompt may have more, since not all of it was counted."""
        self.num_tokens, self.limit = num_tokens, limit
        how_many = f"at least {num_tokens}" if at_least else f"{num_tokens}"
        super().__init__(
            f"the prompt has {how_many} tokens but only {limit} fit; "
            "shorten the text, use fewer pictures or a smaller budget (max_pixels)"
        )


class OptionError(QwinkError, ValueError):
    """An option's value is out of range or cannot be honoured."""


class ShapeError(OptionError):
    """The shape of an answer is not valid, too large, or allows no answer.

    `option` is the option that gave the shape: schema, choices, regex or grammar.
    """

    def __init__(self, option: str, message: str) -> None:
        self.option, self.reason = option, message
        super().__init__(f"{option}: {message}")


class GenerationError(QwinkError):
    """The model computed logits that are not numbers."""


class OutOfMemory(QwinkError):
    """A device has too little memory for the model or a request."""


class RequestEnded(QwinkError):
    """The request ended without an answer."""


class Overloaded(RequestEnded):
    """Too many requests are waiting."""


class Cancelled(RequestEnded):
    """The caller cancelled the request."""


class DeadlineExceeded(RequestEnded):
    """The answer took longer than allowed."""


class EngineStopped(RequestEnded):
    """The engine has stopped, was closed, or belongs to the parent of this process."""
