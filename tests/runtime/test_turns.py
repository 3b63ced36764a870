"""What is decoded, and what is refused before anything is."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from qwink.errors import Cancelled, ContextOverflow, ImageError
from qwink.inputs import images, length
from qwink.runtime import preparation
from qwink.runtime.messages import ImagePart
from qwink.runtime.preparation import ImageOptions
from qwink.runtime.requests import Model
from qwink.runtime.vlm import VLM
from qwink.types import Message

SMALL = ImageOptions(min_pixels=4096, max_pixels=8192)


def _reached(reads: list[int], count: int) -> bool:
    return len(reads) >= count


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of pictures that are decoded."""
    decode, keys = images.decode, []

    def note(opened: Any, *arguments: Any, **options: Any) -> Any:
        keys.append(opened.key)
        return decode(opened, *arguments, **options)

    monkeypatch.setattr(preparation, "decode", note)
    return keys


@pytest.fixture
def narrow(tiny_model: Model) -> Iterator[VLM]:
    """With room for 200 tokens."""
    with VLM(tiny_model, context=200) as vlm:
        yield vlm


def ask(vlm: VLM, *parts: Any, options: ImageOptions = SMALL) -> Any:
    return vlm.prepare([Message("user", parts)], options, vlm.sampling)


@pytest.mark.parametrize("question", ["Read it", "And so?"])  # the second leaves the size open
def test_too_many_pictures_are_refused_before_decoding(
    narrow: VLM, pictures: list[Path], decoded: list[str], question: str
) -> None:
    with pytest.raises(ContextOverflow, match="at least") as caught:
        ask(narrow, *map(ImagePart, pictures * 200), question)
    assert decoded == []
    assert 200 <= caught.value.num_tokens < 220  # opening stops there, too


def test_what_fits_is_not_refused(narrow: VLM, pictures: list[Path], decoded: list[str]) -> None:
    many = [ImagePart(path) for path in pictures * 7]
    request = ask(narrow, *many, "And so?")
    assert 150 < len(request.sequence.prompt) < 200
    assert len(decoded) == 3


def test_equal_pictures_are_decoded_once(
    vlm: VLM, pictures: list[Path], decoded: list[str]
) -> None:
    content = pictures[0].read_bytes()
    request = ask(vlm, *([ImagePart(content)] * 8), ImagePart(pictures[1]), "What?")
    assert len(decoded) == 2
    assert len(request.images) == 2
    assert len(request.sequence.prompt.images) == 9
    other = ImageOptions(min_pixels=16384, max_pixels=16384)
    request = ask(vlm, ImagePart(content), ImagePart(content, other), "What?")
    assert len(decoded) == 4  # other sizes
    assert len(request.images) == 2


def test_long_texts_are_not_tokenised_whole(narrow: VLM, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    encode = type(narrow.tokenizer).encode_template

    def note(self: Any, text: str, *arguments: Any) -> list[int]:
        sizes.append(len(text))
        return encode(self, text, *arguments)

    monkeypatch.setattr(type(narrow.tokenizer), "encode_template", note)
    for text in ("word " * 200_000, "x" * 1_000_000, "字" * 300_000, "<|im_end|>" * 90_000):
        sizes.clear()
        with pytest.raises(ContextOverflow, match="at least"):
            ask(narrow, text)
        assert 0 < sum(sizes) < 3 * 2 * length._SLICE


def test_the_bound_is_one(vlm: VLM) -> None:
    texts = [
        "It's a test, 42 times. " * 900,
        "汉字，没有空格。" * 3000,
        "<think>" * 4000,
        "a" * 30_000,
    ]
    for text in texts:
        most = len(vlm.tokenizer.encode_template(text))
        assert 0 < length.least_tokens([text], vlm.tokenizer, 2000) <= most


def test_work_stops_between_pictures(vlm: VLM, pictures: list[Path], decoded: list[str]) -> None:
    message = Message("user", (*map(ImagePart, pictures), "What?"))
    steps = vlm.prepare_steps([message], SMALL, vlm.sampling, cancelled=lambda: len(decoded) == 1)
    with pytest.raises(Cancelled):
        list(steps)
    assert len(decoded) == 1


def test_work_stops_within_a_picture(vlm: VLM, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    import PIL.Image

    for kind in ("PNG", "GIF", "JPEG"):
        file = io.BytesIO()
        PIL.Image.effect_noise((900, 900), 90).save(file, kind)
        reads: list[int] = []
        read = images.CheckedFile.read

        def note(self: Any, size: int | None = -1, /, read: Any = read, reads: Any = reads) -> Any:
            reads.append(1)
            return read(self, size)

        with monkeypatch.context() as patch:
            patch.setattr(images.CheckedFile, "read", note)
            ask(vlm, ImagePart(file.getvalue()), "What?")
            num_reads = len(reads)
            reads.clear()
            half = num_reads // 2
            steps = vlm.prepare_steps(
                [Message("user", (ImagePart(file.getvalue()), "What?"))],
                SMALL,
                vlm.sampling,
                cancelled=partial(_reached, reads, half),
            )
            with pytest.raises(Cancelled):
                list(steps)
            assert half - 1 <= len(reads) <= half + 1, kind
            assert num_reads > 8


def test_a_broken_picture_has_its_number(vlm: VLM, pictures: list[Path]) -> None:
    broken = bytearray(pictures[0].read_bytes())
    broken[60:] = b"x" * (len(broken) - 60)
    with pytest.raises(ImageError) as caught:
        ask(
            vlm,
            *(ImagePart(part) for part in (pictures[0], pictures[0], bytes(broken), pictures[1])),
            "What?",
        )
    assert caught.value.index == 2
