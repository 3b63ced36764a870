"""Build a prompt from a conversation with encoded images.

To continue a conversation, append the answer and the next question to the messages and build the
prompt again. It starts with the same ids, so their keys and values are found in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from qwink.errors import ContextOverflow, PromptError
from qwink.inputs.chat import ChatTemplate
from qwink.inputs.tokenizer import Tokenizer
from qwink.inputs.tools import Tool
from qwink.model.rope import mrope_positions
from qwink.types import Grid, ImageSpan, Message, Prompt


@runtime_checkable
class ImageTokens(Protocol):
    """What a prompt needs of an image. `EncodedImage` has it."""

    @property
    def grid(self) -> Grid: ...

    @property
    def key(self) -> str: ...

    @property
    def num_tokens(self) -> int: ...

    @property
    def is_video(self) -> bool: ...


def build_prompt(
    messages: Sequence[Message],
    tokenizer: Tokenizer,
    template: ChatTemplate,
    merge_size: int = 2,
    *,
    add_generation_prompt: bool = True,
    continue_final: bool = False,
    tools: Sequence[Tool] = (),
) -> Prompt:
    """Ids, image spans and positions of a conversation, in reading order.

    Each image in a message's content is an `ImageTokens`. With `continue_final`, the answer
    continues the last turn, which must be the assistant's and have text. `tools`: what the answer
    may call.

    Raises PromptError for an empty conversation, an unknown role, a system turn that is not the
    first, images in other turns than the user's and tools', content of another kind, or a template
    that does not place each image once or has no place for tools.
    """
    images = _images(messages)
    if continue_final and (messages[-1].role != "assistant" or not any(messages[-1].content)):
        raise PromptError("only a text of the assistant can be continued; make it the last turn")
    rendered = template.encode(
        messages,
        tokenizer,
        add_generation_prompt=add_generation_prompt,
        continue_final=continue_final,
        tools=[tool.described() for tool in tools] or None,
    )
    pad = tokenizer.image_pad
    if rendered.count(pad) != len(images):
        raise PromptError(
            f"the chat template places {rendered.count(pad)} of {len(images)} images; "
            "use the chat template of a Qwen3-VL checkpoint"
        )
    ids: list[int] = []
    spans: list[ImageSpan] = []
    for token in rendered:
        if token == pad:
            image = images[len(spans)]
            spans.append(ImageSpan(len(ids), image.num_tokens, image.grid, image.key))
            ids += [tokenizer.video_pad if image.is_video else pad] * image.num_tokens
        else:
            ids.append(token)
    positions, next_position = mrope_positions(len(ids), spans, merge_size)
    has_system = messages[0].role == "system" or bool(tools)
    num_system = rendered.index(tokenizer.im_end) + 1 if has_system else 0
    ids_array = np.array(ids, dtype=np.int64)
    return Prompt(ids_array, tuple(spans), positions, next_position, num_system)


def check_context(prompt: Prompt, limit: int) -> None:
    """Raises ContextOverflow if the prompt leaves no room for one token of the answer."""
    if len(prompt) >= limit:
        raise ContextOverflow(len(prompt), limit - 1)


def _images(messages: Sequence[Message]) -> list[ImageTokens]:
    if not messages:
        raise PromptError("the conversation is empty; add a user turn")
    images: list[ImageTokens] = []
    for index, message in enumerate(messages):
        if message.role not in ("system", "user", "assistant", "tool"):
            raise PromptError(f"unknown role {message.role!r}; use system, user, assistant or tool")
        if message.role == "system" and index > 0:
            raise PromptError("a system turn follows other turns; make it the first")
        for part in message.content:
            if isinstance(part, str):
                continue
            if not isinstance(part, ImageTokens):
                raise PromptError(
                    f"content of type {type(part).__name__} is neither text nor an encoded image"
                )
            if message.role not in ("user", "tool"):
                raise PromptError(
                    f"an image is in a turn of role {message.role}; move it to a user turn"
                )
            images.append(part)
    return images
