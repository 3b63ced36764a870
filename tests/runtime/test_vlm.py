"""The façade: asking, streaming, reuse, conversations, options, threads, timings."""

from __future__ import annotations

import asyncio
import io
import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from PIL import ImageDraw

from qwink.errors import ContextOverflow, DeadlineExceeded, ImageError, OptionError, PromptError
from qwink.inputs.frames import VideoOptions
from qwink.inputs.images import decode, open_image
from qwink.inputs.patches import prepare
from qwink.inputs.pdf import PdfOptions
from qwink.inputs.prompt import build_prompt
from qwink.runtime.conversation import Conversation
from qwink.runtime.messages import ImagePart, user_message
from qwink.runtime.options import AskKeywords
from qwink.runtime.preparation import ImageOptions
from qwink.runtime.requests import Model
from qwink.runtime.vlm import VLM
from qwink.runtime.waiting import Limits
from qwink.types import STAGES, EncodedImage, Event, Message, Patches, Result, SamplingParams
from tests.parity import Case, reference_inputs

SMALL: dict[str, Any] = {"min_pixels": 1024, "max_pixels": 8192}  # at most eight tokens a picture


def ask(vlm: VLM, *arguments: Any, **options: Any) -> Result:
    return vlm.ask(*arguments, **(SMALL | options))


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events)


# Answers


def test_answer_is_complete(vlm: VLM, pictures: list[Path]) -> None:
    result = ask(vlm, pictures[0], "What is this?")
    assert result.text
    assert result.finish_reason == "length"
    assert result.model == "tiny"
    assert result.usage.completion_tokens == 12
    assert result.usage.image_tokens == 4
    assert result.usage.prompt_tokens > 4 + len("What is this?") / 8
    assert result.warnings == ("stopped after 12 tokens (length): max_tokens allows more",)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_greedy_answer_is_that_of_transformers(
    vlm: VLM,
    tiny_model: Model,
    tiny_checkpoint: tuple[Path, Any],
    pictures: list[Path],
    count: int,
) -> None:
    """Token by token, with the same ids forbidden."""
    reference = tiny_checkpoint[1]
    engine, tokenizer = vlm.engine, vlm.tokenizer
    shown = pictures[:count]
    result = ask(vlm, shown, "What is the total?", max_tokens=24)

    images = [vlm.encode(path, **SMALL) for path in shown]
    prompt = build_prompt(
        [Message("user", (*images, "What is the total?"))], tokenizer, tiny_model.template
    )
    patches = tuple(_patches(path) for path in shown)
    inputs = reference_inputs(Case(prompt, patches), engine.config.image_token_id)
    with torch.no_grad():
        output = reference.generate(
            **inputs,
            max_new_tokens=24,
            do_sample=False,
            temperature=None,
            top_k=None,
            top_p=None,
            suppress_tokens=tokenizer.forbidden_ids(engine.config.text.vocab_size).tolist(),
        )
    answer = output[0, len(prompt) :].tolist()
    assert result.usage.prompt_tokens == len(prompt)
    assert result.usage.completion_tokens == len(answer)
    assert result.text == tokenizer.decode(answer)


def _patches(path: Path) -> Patches:
    picture = decode(open_image(path))
    return prepare(picture, picture.size)


def test_any_kind_of_source_gives_the_same_answer(vlm: VLM, pictures: list[Path]) -> None:
    path = pictures[0]
    with PIL.Image.open(path) as image:
        image.load()
    pixels = np.asarray(image)
    file, floats = io.BytesIO(path.read_bytes()), pixels / 255
    sources = [
        path,
        str(path),
        path.read_bytes(),
        file,
        image,
        pixels,
        floats,
        vlm.encode(path, **SMALL),
    ]
    answers = {ask(vlm, source, "What is this?").text for source in sources}
    assert len(answers) == 1


def test_order_of_pictures_matters(vlm: VLM, pictures: list[Path]) -> None:
    first, second = pictures[:2]
    forwards = ask(vlm, [first, second], "What changed?")
    backwards = ask(vlm, [second, first], "What changed?")
    assert forwards.usage == backwards.usage
    assert forwards.text != backwards.text
    assert ask(vlm, (first, second), "What changed?").text == forwards.text


def test_pictures_share_nothing(vlm: VLM, tiny_model: Model, pictures: list[Path]) -> None:
    """The same question about A, B, and A again; B is not what A left in a cache."""
    a, b, again = (ask(vlm, pictures[i], "What is this?") for i in (0, 2, 0))
    assert a.text != b.text
    assert again.text == a.text
    with VLM(tiny_model) as fresh:
        assert ask(fresh, pictures[2], "What is this?").text == b.text


def test_known_prompts_are_not_run_again(vlm: VLM, pictures: list[Path]) -> None:
    first, again = (ask(vlm, pictures[0], "What is this?") for _ in range(2))
    assert first.usage.cached_tokens == 0
    assert again.usage.cached_tokens == first.usage.prompt_tokens
    assert again.text == first.text
    assert f"{again.usage.cached_tokens} prompt tokens reused" in again.timings.notes


def test_system_prompt_is_heard(vlm: VLM, pictures: list[Path]) -> None:
    plain = ask(vlm, pictures[0], "What is this?")
    told = ask(vlm, pictures[0], "What is this?", system="Answer in one word, please.")
    assert told.usage.prompt_tokens > plain.usage.prompt_tokens
    assert told.text != plain.text


def test_default_question(vlm: VLM, pictures: list[Path]) -> None:
    ocr = ask(vlm, pictures[0], task="ocr")
    assert ocr.text == ask(vlm, pictures[0], "Read all the text in the picture.", task="ocr").text


def test_forbidden_ids_are_never_sampled(vlm: VLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where the model likes them best."""
    tokenizer, engine = vlm.tokenizer, vlm.engine
    forbidden = tokenizer.forbidden_ids(engine.config.text.vocab_size)
    assert tokenizer.image_pad in forbidden
    assert engine.config.text.vocab_size - 1 in forbidden  # padding of the head
    step = type(engine).step
    logits_of = type(engine).logits
    seen: list[int] = []

    def favour(logits: Any) -> Any:
        logits = logits.copy()
        logits[:, forbidden] += 100
        return logits

    def record(*arguments: Any) -> Any:
        seen.extend(token for run in arguments[2] for token in run.ids)
        return favour(step(*arguments))

    monkeypatch.setattr(
        type(engine), "logits", lambda self, hidden: favour(logits_of(self, hidden))
    )
    monkeypatch.setattr(type(engine), "step", record)
    for temperature in (0.0, 1.5):
        ask(vlm, None, "What is this?", temperature=temperature, seed=1)
    assert len(seen) >= 11
    assert not set(seen) & set(forbidden.tolist())


# Streams


def test_pieces_make_the_answer(vlm: VLM, pictures: list[Path]) -> None:
    events = list(vlm.stream(pictures[0], "What is this?", **SMALL))
    assert [event.stage for event in events if event.stage] == ["encode", "prefill"]
    assert all(event.result is None for event in events[:-1])
    assert all(bool(event.text) == (event.stage is None) for event in events[:-1])
    assert events[-1].text == ""
    result = events[-1].result
    assert result is not None
    assert text_of(events) == result.text == ask(vlm, pictures[0], "What is this?").text
    assert len(events) > 3


def test_abandoned_stream_leaves_the_model_usable(vlm: VLM, pictures: list[Path]) -> None:
    expected = ask(vlm, pictures[0], "What is this?").text
    for num_events in (1, 2, 3, 4):
        stream = vlm.stream(pictures[1], "Describe the picture.", **SMALL)
        for _ in range(num_events):
            next(stream)
        del stream
    assert ask(vlm, pictures[0], "What is this?").text == expected


# Answers of different lengths: who finishes makes room, and others move up.
QUESTIONS = (
    (1, "What is this?", 3),
    (0, "Read the text.", 16),
    (None, "Hello", 9),
    (2, "Answer in one word, please.", 12),
)


@pytest.mark.parametrize("shift", range(4))
def test_interleaved_streams_do_not_disturb_each_other(
    tiny_model: Model, pictures: list[Path], shift: int
) -> None:
    questions = [
        (None if index is None else pictures[index], question, length)
        for index, question, length in QUESTIONS[shift:] + QUESTIONS[:shift]
    ]
    with VLM(tiny_model, limits=Limits(keep_prompts=False)) as vlm:
        alone = [ask(vlm, image, text, max_tokens=n).text for image, text, n in questions]
        streams = [vlm.stream(image, text, max_tokens=n, **SMALL) for image, text, n in questions]
        texts = [""] * len(questions)
        for events in itertools.zip_longest(*streams):
            for index, event in enumerate(events):
                texts[index] += event.text if event is not None else ""
    assert texts == alone


def test_parallel_questions_answer_as_alone(tiny_model: Model, pictures: list[Path]) -> None:
    def answer(question: tuple[int | None, str, int]) -> str:
        index, text, length = question
        image = None if index is None else pictures[index]
        return ask(vlm, image, text, max_tokens=length).text

    with VLM(tiny_model, limits=Limits(keep_prompts=False)) as vlm:
        alone = [answer(question) for question in QUESTIONS]
        with ThreadPoolExecutor(4) as pool:
            for _ in range(4):
                assert list(pool.map(answer, QUESTIONS)) == alone


def test_pieces_of_a_prompt_make_no_difference(
    vlm: VLM, tiny_model: Model, pictures: list[Path]
) -> None:
    expected = ask(vlm, pictures[:2], "What changed?").text
    with VLM(tiny_model, limits=Limits(prefill_chunk=5)) as chunked:
        assert ask(chunked, pictures[:2], "What changed?").text == expected


# Reuse


def test_encode_once_and_ask_often(vlm: VLM, tiny_model: Model, pictures: list[Path]) -> None:
    with VLM(tiny_model) as other:
        direct = ask(other, pictures[0], "What is this?")
    encoded = vlm.encode(pictures[0], **SMALL)
    for question in ("What is this?", "Read the text."):
        result = vlm.ask(encoded, question)
        assert result.timings.origins["encode"] == "reused"
        assert result.timings.encode_ms == 0
        assert result.timings.origins["fetch"] == "absent"
    assert vlm.ask(encoded, "What is this?").text == direct.text


def test_the_same_picture_is_encoded_once(vlm: VLM, pictures: list[Path]) -> None:
    first = ask(vlm, pictures[0], "What is this?")
    assert first.timings.origins["encode"] == "computed"
    again = ask(vlm, str(pictures[0]), "Describe the picture.")
    assert again.timings.origins["encode"] == "reused"
    assert again.timings.encode_ms == 0
    # Part of the pictures new: something was computed.
    both = ask(vlm, [pictures[0], pictures[2]], "What changed?")
    assert both.timings.origins["encode"] == "computed"
    # Another size is another encoding.
    larger = ask(vlm, pictures[0], "What is this?", min_pixels=8192, max_pixels=16384)
    assert larger.timings.origins["encode"] == "computed"
    assert larger.usage.image_tokens > first.usage.image_tokens


def test_image_of_another_model_is_refused(vlm: VLM, pictures: list[Path]) -> None:
    mine = vlm.encode(pictures[0], **SMALL)
    key = mine.key[:-16] + "0" * 16
    other = EncodedImage(mine.embeds, mine.deepstack, mine.grid, key)
    with pytest.raises(OptionError, match="encoded by another model"):
        vlm.ask(other, "What is this?")


# Conversations


def test_conversation_equals_its_history_in_one_go(
    vlm: VLM, tiny_model: Model, pictures: list[Path]
) -> None:
    talk = vlm.conversation("You are a helpful assistant.")
    first = talk.ask("What is this?", pictures[0], **SMALL)
    second = talk.ask("What is the total?", **SMALL)
    third = talk.ask("What changed?", pictures[1], **SMALL)
    assert [message.role for message in talk.messages] == [
        "system", "user", "assistant", "user", "assistant", "user", "assistant",
    ]  # fmt: skip
    history = [
        Message("system", ("You are a helpful assistant.",)),
        Message("user", (ImagePart(pictures[0]), "What is this?")),
        Message("assistant", (first.text,)),
        Message("user", ("What is the total?",)),
        Message("assistant", (second.text,)),
        Message("user", (ImagePart(pictures[1]), "What changed?")),
    ]
    options, sampling = vlm.split_options(dict(SMALL))
    with VLM(tiny_model) as fresh:
        result = list(fresh.stream_messages(history, options, sampling))[-1].result
    assert result is not None
    assert result.text == third.text
    assert result.usage.cached_tokens == 0
    assert third.usage == replace(result.usage, cached_tokens=third.usage.cached_tokens)
    known = second.usage.prompt_tokens if vlm.engine.traits.invariant else 8  # the first picture
    assert third.usage.cached_tokens >= known


def test_abandoned_turn_is_not_remembered(vlm: VLM) -> None:
    talk = Conversation(vlm)
    stream = talk.stream("What is this?")
    next(stream)
    del stream
    assert talk.messages == []
    assert talk.ask("What is this?").text == vlm.ask(None, "What is this?").text
    assert len(talk.messages) == 2


def test_conversation_tells_where_the_time_went(vlm: VLM, pictures: list[Path]) -> None:
    talk = vlm.conversation()
    first = talk.ask("What is this?", pictures[0], **SMALL)
    assert first.timings.origins["encode"] == "computed"
    assert first.timings.encode_ms > 0
    assert first.timings.notes
    second = talk.ask("And what changed?", **SMALL)
    assert second.timings.origins["encode"] == "reused"
    assert second.timings.encode_ms == 0


# Options


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"colour": "red"}, "unknown option 'colour'"),
        ({"max_new_tokens": 8}, "unknown option 'max_new_tokens'; did you mean max_tokens"),
        ({"temprature": 0}, "did you mean temperature"),
        ({"temperature": "hot"}, "temperature is str; it must be a number"),
        ({"top_k": None}, "top_k is NoneType; it must be a whole number"),
        ({"max_pixels": "x" * 999}, "max_pixels is str; it must be a whole number"),
        ({"max_image_pixels": 1.5}, "max_image_pixels is 1.5; it must be a whole number"),
        ({"timeout": 0}, "timeout is 0; it must be above 0"),
        ({"timeout": "soon"}, "timeout is str; it must be a number"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"seed": "x"}, "seed"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a", 1]}, "stop"),
        ({"task": "sing"}, "unknown task 'sing'"),
        ({"min_pixels": 4096, "max_pixels": 1024}, "min_pixels=4096"),
        ({"max_pixels": 10}, "max_pixels=10"),
        ({"resample": "nearest"}, "nearest"),
    ],
    ids=str,
)
def test_bad_options(vlm: VLM, pictures: list[Path], options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        vlm.ask(pictures[0], "What is this?", **options)


def test_editors_see_every_option() -> None:
    kinds = (ImageOptions, VideoOptions, PdfOptions, SamplingParams)
    known = {field.name for kind in kinds for field in fields(kind)} - {"video", "pdf"}
    assert AskKeywords.__optional_keys__ == known | {"schema", "choices", "regex", "grammar"}
    for function in (VLM.ask, VLM.stream, VLM.aask, VLM.astream, Conversation.ask):
        assert function.__annotations__["options"] == "Unpack[AskKeywords]"


def test_urls_of_other_schemes(vlm: VLM) -> None:
    with pytest.raises(ImageError, match=r"pass the path: '/tmp/a b\.png'"):
        vlm.ask("file:///tmp/a%20b.png", "What?")
    with pytest.raises(ImageError, match="s3 URLs are not read; download"):
        vlm.ask("s3://bucket/a.png", "What?")


# Honest answers


def test_a_picture_shown_small_gives_a_warning(vlm: VLM) -> None:
    tall = np.zeros((1024, 64, 3), np.uint8)
    (small, _) = vlm.ask(tall, "What is this?", max_pixels=8192, max_tokens=1).warnings
    assert small == (
        "the array is shown at 25 % of its size (64×1024); crop it or raise max_pixels"
    )
    numbered = vlm.ask([tall[:64], tall], "What is this?", max_pixels=8192, max_tokens=1)
    assert numbered.warnings[0] == f"image 2 of 2: {small}"
    whole = vlm.ask(tall, "What is this?", min_pixels=65536, max_pixels=65536, max_tokens=1)
    assert [warning for warning in whole.warnings if "shown" in warning] == []


HOT = SamplingParams(max_tokens=4, temperature=5.0)


@pytest.mark.parametrize(
    ("task", "question", "greedy"),
    [
        ("ocr", "Hi", True),
        ("document", "Hi", True),
        ("locate", "Hi", True),
        ("describe", "Hi", False),
        ("auto", "What is the total?", True),
        ("auto", "Where is the dog?", True),
        ("auto", "Describe this picture.", False),
    ],
)
def test_tasks_that_read_or_locate_are_greedy(
    tiny_model: Model, pictures: list[Path], task: Any, question: str, greedy: bool
) -> None:
    with VLM(replace(tiny_model, sampling=HOT)) as vlm:
        answers = {
            vlm.ask(pictures[0], question, task=task, max_tokens=8, **SMALL).text for _ in range(3)
        }
        assert (len(answers) == 1) == greedy
        asked = {
            vlm.ask(pictures[0], question, task=task, max_tokens=8, temperature=5.0, **SMALL).text
            for _ in range(3)
        }
        assert len(asked) > 1


def test_auto_is_greedy_where_the_picture_shows_text(tiny_model: Model) -> None:
    page = PIL.Image.new("RGB", (224, 224), "white")
    for line in range(8):
        ImageDraw.Draw(page).text((4, 4 + 26 * line), "Total 42.50 of 7", "black")
    plain = PIL.Image.new("RGB", (224, 224), "red")
    with VLM(replace(tiny_model, sampling=HOT)) as vlm:
        for picture, count in ((page, 1), (plain, 3)):
            texts = {vlm.ask(picture, "Hm", max_tokens=8, **SMALL).text for _ in range(3)}
            assert len(texts) == count


def test_a_document_may_be_long(vlm: VLM, pictures: list[Path]) -> None:
    for task, given, wanted in (
        ("document", {}, 2048),
        ("document", {"max_tokens": 5}, 5),
        ("ocr", {}, 12),
    ):
        options, sampling = vlm.split_options({**SMALL, "task": task, **given})
        turns = [Message("user", (ImagePart(pictures[0]), "Hi"))]
        assert vlm.prepare(turns, options, sampling).max_tokens == min(wanted, vlm.context - 1)


# Time limits and event loops


def test_a_timeout_ends_the_answer(vlm: VLM) -> None:
    with pytest.raises(DeadlineExceeded):
        vlm.ask(None, "Hello", max_tokens=500, temperature=1.0, timeout=1e-6)
    assert vlm.ask(None, "Hello", timeout=600).text


def test_async_gives_the_same_answers(vlm: VLM, pictures: list[Path]) -> None:
    wanted = ask(vlm, pictures[0], "What is this?").text

    async def both() -> None:
        first, second = await asyncio.gather(
            *(vlm.aask(pictures[0], "What is this?", **SMALL) for _ in range(2))
        )
        assert first.text == second.text == wanted
        events = [event async for event in vlm.astream(pictures[0], "What is this?", **SMALL)]
        assert "".join(event.text for event in events) == wanted
        with pytest.raises(DeadlineExceeded):
            await vlm.aask(None, "Hello", timeout=1e-6)

    asyncio.run(both())


def test_cancelling_the_task_cancels_the_request(vlm: VLM) -> None:
    async def cancel() -> None:
        task = asyncio.create_task(vlm.aask(None, "Hello", max_tokens=10_000, temperature=1.0))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert vlm.ask(None, "Hello", max_tokens=1).text is not None


@pytest.mark.parametrize("nothing", [None, [], ()], ids=str)
def test_nothing_to_answer(vlm: VLM, nothing: Any) -> None:
    with pytest.raises(PromptError, match="nothing to answer"):
        vlm.ask(nothing)


@pytest.mark.parametrize("source", ["absent.png", b"", b"GIF89a but not really", 7, "data:,x"])
def test_pictures_that_cannot_be_used(vlm: VLM, source: Any) -> None:
    with pytest.raises((ImageError, OptionError)):
        vlm.ask(source, "What is this?")


def test_number_of_tokens(vlm: VLM) -> None:
    for count in (1, 2, 7):
        result = vlm.ask(None, "Hello", max_tokens=count)
        assert result.usage.completion_tokens == count
        assert result.finish_reason == "length"
    longer = vlm.ask(None, "Hello", max_tokens=9).text
    assert longer.startswith(result.text.rstrip("\ufffd"))


def test_stop_strings_end_the_answer_before_them(vlm: VLM) -> None:
    whole = vlm.ask(None, "Hello", max_tokens=30).text
    stop = whole[8:11]
    result = vlm.ask(None, "Hello", max_tokens=30, stop=stop)
    assert result.text == whole[: whole.index(stop)]
    assert result.finish_reason == "stop"
    assert vlm.ask(None, "Hello", max_tokens=30, stop=["absent", stop]).text == result.text


def test_end_token_stops(vlm: VLM, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = vlm.ask(None, "Hello")
    ids = iter(range(100))
    engine, end = type(vlm.engine), vlm.tokenizer.im_end
    step = engine.step

    def end_soon(*arguments: Any) -> Any:
        logits = step(*arguments)
        if next(ids) == 3:
            logits[:, end] = 1e4
        return logits

    monkeypatch.setattr(engine, "step", end_soon)
    result = vlm.ask(None, "Hello")
    assert result.finish_reason == "stop"
    assert result.usage.completion_tokens == 5
    assert whole.text.startswith(result.text.rstrip("\ufffd"))


def test_seeds_reproduce(vlm: VLM) -> None:
    def sampled(seed: int | None) -> str:
        return vlm.ask(None, "Hello", temperature=1.0, seed=seed).text

    assert sampled(1) == sampled(1)
    assert len({sampled(seed) for seed in range(4)}) > 1
    assert len({sampled(None) for _ in range(4)}) > 1


def test_context_is_a_limit(tiny_model: Model) -> None:
    with VLM(tiny_model, context=40) as vlm:
        num_tokens = vlm.ask(None, "Hello", max_tokens=1).usage.prompt_tokens
        result = vlm.ask(None, "Hello", max_tokens=1000)
        assert result.usage.completion_tokens == 40 - num_tokens
        assert result.finish_reason == "length"
        with pytest.raises(ContextOverflow) as caught:
            vlm.ask(None, "Hello " * 50)
        assert caught.value.limit == 39
        assert f"has {caught.value.num_tokens} tokens but only 39 fit" in str(caught.value)
        assert vlm.ask(None, "Hello").text  # and nothing is broken
    with VLM(tiny_model, num_tokens + 1) as vlm:
        assert vlm.ask(None, "Hello").usage.completion_tokens == 1
    with VLM(tiny_model, num_tokens) as vlm, pytest.raises(ContextOverflow):
        vlm.ask(None, "Hello")


@pytest.mark.parametrize("context", [1, 0, -5, 10**9])
def test_impossible_contexts(tiny_model: Model, context: int) -> None:
    with pytest.raises(OptionError, match=f"context is {context}"):
        VLM(tiny_model, context)


def test_models_own_defaults_are_used(tiny_model: Model) -> None:
    with VLM(replace(tiny_model, sampling=SamplingParams(max_tokens=3))) as vlm:
        assert vlm.sampling.max_tokens == 3
        assert vlm.ask(None, "Hello").usage.completion_tokens == 3
        assert vlm.ask(None, "Hello", max_tokens=2).usage.completion_tokens == 2


# Timings


def test_timings_are_complete(vlm: VLM, pictures: list[Path]) -> None:
    timings = ask(vlm, pictures[0], "What is this?").timings
    assert set(timings.origins) == set(STAGES)
    assert set(timings.origins.values()) == {"computed"}
    stages = [getattr(timings, f"{stage}_ms") for stage in STAGES]
    assert min(stages) > 0
    assert timings.queue_ms + sum(stages) <= timings.total_ms
    assert sum(stages[:-1]) <= timings.first_token_ms <= timings.total_ms - timings.generate_ms
    assert len(timings.notes) == 1
    assert "describe" in timings.notes[0]
    assert "up to 8 tokens, min_pixels given, max_pixels given" in timings.notes[0]


def test_timings_of_plain_chat(vlm: VLM) -> None:
    timings = vlm.ask(None, "Hello").timings
    computed = {stage for stage, origin in timings.origins.items() if origin == "computed"}
    assert computed == {"prefill", "generate"}
    assert timings.encode_ms == timings.fetch_ms == 0
    assert timings.notes == ()


def test_user_message_is_images_then_question() -> None:
    message = user_message(["a.png", b"x"], "Why?", "auto")
    assert [part.source for part in message.content[:2]] == ["a.png", b"x"]
    assert message.content[2] == "Why?"
    assert user_message(b"x", None, "locate").content[1].startswith("Locate every object")
