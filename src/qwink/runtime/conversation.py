"""A conversation: each question is asked together with the turns before it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Unpack

from qwink.runtime.messages import as_list, last_result
from qwink.runtime.options import AskKeywords, check_timeout
from qwink.runtime.parts import find_part, prepare_part
from qwink.runtime.preparation import PreparedImage
from qwink.runtime.stopwatch import Stopwatch
from qwink.types import Event, ImageSource, Message, Result

if TYPE_CHECKING:
    from qwink.runtime.vlm import VLM


class Conversation:
    """The turns so far, made by `VLM.conversation`. `messages` is the list of them.

    Pictures of earlier turns are not decoded or encoded again. One thread at a time.

    ```python
    chat = vlm.conversation()
    print(chat.ask("What shape is it?", images="examples/red-circle.png").text)  # A circle.
    print(chat.ask("What colour is the circle?").text)  # Red.
    ```
    """

    def __init__(self, vlm: VLM, system: str | None = None) -> None:
        self._vlm = vlm
        self.messages: list[Message] = [] if system is None else [Message("system", (system,))]

    def ask(
        self,
        question: str,
        images: ImageSource | Sequence[ImageSource] | None = None,
        *,
        timeout: float | None = None,
        **options: Unpack[AskKeywords],
    ) -> Result:
        """The next question, about `images` or those of earlier turns.

        Options and errors are those of `VLM.ask`. A question that raises adds no turn.
        """
        return last_result(self.stream(question, images, timeout=timeout, **options))

    def stream(
        self,
        question: str,
        images: ImageSource | Sequence[ImageSource] | None = None,
        *,
        timeout: float | None = None,
        **options: Unpack[AskKeywords],
    ) -> Iterator[Event]:
        """As `ask`, piece by piece. The turn is added with the last event."""
        check_timeout(timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        image_options, sampling = self._vlm.split_options(options)
        watch, engine = Stopwatch(), self._vlm.engine
        context, pictures = self._vlm.context, list[str | PreparedImage]()
        for source in as_list(images):
            found = find_part(source, question, image_options, engine, watch, context)
            pictures += prepare_part(found, engine, watch)
        turns = [*self.messages, Message("user", (*pictures, question))]
        for event in self._vlm.stream_messages(turns, image_options, sampling, watch, deadline):
            if event.result is not None:
                self.messages = [*turns, Message("assistant", (event.result.text,))]
            yield event
