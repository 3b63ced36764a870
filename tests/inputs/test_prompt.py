from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from qwink.errors import ContextOverflow, PromptError
from qwink.inputs.chat import ChatTemplate
from qwink.inputs.prompt import ImageTokens, build_prompt, check_context
from qwink.inputs.tokenizer import Tokenizer
from qwink.model.rope import mrope_positions
from qwink.types import EncodedImage, Grid, Message
from tests.tiny import write_tokenizer


@dataclass(frozen=True)
class FakeImage:
    grid: Grid
    key: str
    is_video: bool = False

    @property
    def num_tokens(self) -> int:
        return self.grid.num_patches // 4


WIDE = FakeImage(Grid(1, 4, 8), "wide")
TALL = FakeImage(Grid(1, 6, 2), "tall")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("prompt")
    write_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.load(folder)


@pytest.fixture(scope="module")
def template(folder: Path) -> ChatTemplate:
    return ChatTemplate.load(folder)


def test_images_stay_where_the_user_put_them(tokenizer: Tokenizer, template: ChatTemplate) -> None:
    messages = [
        Message("system", ("Be brief.",)),
        Message("user", ("Compare", WIDE, "with", TALL, "<|image_pad|>?")),
        Message("assistant", ("No.",)),
        Message("user", (WIDE, "And now?")),
    ]
    prompt = build_prompt(messages, tokenizer, template)
    assert [(span.key, span.length) for span in prompt.images] == [
        ("wide", 8),
        ("tall", 3),
        ("wide", 8),
    ]
    pads = np.flatnonzero(prompt.ids == tokenizer.image_pad)
    inside = [i for span in prompt.images for i in range(span.start, span.start + span.length)]
    assert pads.tolist() == inside
    for span in prompt.images:
        assert prompt.ids[span.start - 1] == tokenizer.vision_start
        assert prompt.ids[span.start + span.length] == tokenizer.vision_end
    between = prompt.ids[prompt.images[0].start + 9 : prompt.images[1].start - 1]
    assert tokenizer.decode(between.tolist()) == "with"
    positions, next_position = mrope_positions(len(prompt), prompt.images)
    assert np.array_equal(prompt.positions, positions)
    assert prompt.next_position == next_position
    assert prompt.positions.dtype == prompt.ids.dtype == np.int64


def test_a_continued_conversation_starts_with_the_same_ids(
    tokenizer: Tokenizer, template: ChatTemplate
) -> None:
    first = [Message("user", (WIDE, "What is it?"))]
    before = build_prompt(first, tokenizer, template)
    more = [*first, Message("assistant", ("A cat.",)), Message("user", ("Sure?",))]
    after = build_prompt(more, tokenizer, template)
    assert np.array_equal(after.ids[: len(before)], before.ids)
    assert np.array_equal(after.positions[:, : len(before)], before.positions)


def test_an_encoded_image_is_accepted(tokenizer: Tokenizer, template: ChatTemplate) -> None:
    image = EncodedImage(
        np.zeros((8, 4), np.float32), np.zeros((3, 8, 4), np.float32), Grid(1, 4, 8), "key"
    )
    assert isinstance(image, ImageTokens)
    prompt = build_prompt([Message("user", (image,))], tokenizer, template)
    assert prompt.images[0].length == 8


@pytest.mark.parametrize(
    ("messages", "cause"),
    [
        ([], "empty"),
        ([Message("critic", ("x",))], "unknown role 'critic'"),  # type: ignore[arg-type]
        ([Message("user", ("x",)), Message("system", ("y",))], "make it the first"),
        ([Message("system", (WIDE,))], "move it to a user turn"),
        ([Message("user", ("x",)), Message("assistant", (WIDE,))], "move it to a user turn"),
        ([Message("user", (b"jpeg",))], "type bytes"),
    ],
)
def test_invalid_conversations_are_refused(
    tokenizer: Tokenizer, template: ChatTemplate, messages: list[Message], cause: str
) -> None:
    with pytest.raises(PromptError, match=cause):
        build_prompt(messages, tokenizer, template)


def test_a_template_that_drops_images(tokenizer: Tokenizer) -> None:
    template = ChatTemplate("{{ messages[0].role }}")
    with pytest.raises(PromptError, match="places 0 of 1 images"):
        build_prompt([Message("user", (WIDE, "x"))], tokenizer, template)


def test_tokens_unlike_the_grid(tokenizer: Tokenizer, template: ChatTemplate) -> None:
    @dataclass(frozen=True)
    class Odd:
        grid: Grid
        key: str = "odd"
        num_tokens: int = 9
        is_video: bool = False

    with pytest.raises(PromptError, match="takes 8 tokens, not 9"):
        build_prompt([Message("user", (Odd(Grid(1, 4, 8)),))], tokenizer, template)


def test_context(tokenizer: Tokenizer, template: ChatTemplate) -> None:
    prompt = build_prompt([Message("user", ("Hello",))], tokenizer, template)
    check_context(prompt, len(prompt) + 1)
    with pytest.raises(ContextOverflow) as caught:
        check_context(prompt, len(prompt))
    assert (caught.value.num_tokens, caught.value.limit) == (len(prompt), len(prompt) - 1)


def test_only_texts_of_the_assistant_are_continued(
    tokenizer: Tokenizer, template: ChatTemplate
) -> None:
    ask, answer = Message("user", (WIDE, "Hi")), Message("assistant", ("Total 4",))
    whole = build_prompt([ask], tokenizer, template)
    prompt = build_prompt([ask, answer], tokenizer, template, continue_final=True)
    assert prompt.ids[: len(whole)].tolist() == whole.ids.tolist()
    assert tokenizer.decode(prompt.ids[len(whole) :].tolist()) == "Total 4"
    for turns in ([ask], [ask, Message("assistant", ("",))], [ask, Message("assistant", ())]):
        with pytest.raises(PromptError, match="can be continued"):
            build_prompt(turns, tokenizer, template, continue_final=True)
