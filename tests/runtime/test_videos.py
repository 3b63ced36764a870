"""Videos against Transformers, and what becomes of a video in a conversation."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import PIL.Image
import pytest
import torch
from numpy.typing import NDArray

from qwink.engine.base import Chunk
from qwink.errors import ImageError, OptionError
from qwink.runtime.messages import ImagePart
from qwink.runtime.preparation import ImageOptions
from qwink.runtime.vlm import VLM
from qwink.types import Message, Patches, SamplingParams, Video
from tests.inputs.videos import write_video
from tests.parity import TOLERANCE

Bytes = NDArray[np.uint8]


class SizeKeywords(TypedDict):
    min_pixels: int
    max_pixels: int


SMALL: SizeKeywords = {"min_pixels": 1024, "max_pixels": 64 * 64}
SIZES = ImageOptions(min_pixels=1024, max_pixels=64 * 64)


def noise(count: int, seed: int = 0, size: tuple[int, int] = (64, 32)) -> list[Bytes]:
    """Frames of noise, width and height a multiple of 32."""
    width, height = size
    rng = np.random.default_rng(seed)
    return list(rng.integers(0, 256, (count, height, width, 3), np.uint8))


def reference_video(frames: list[Bytes]) -> tuple[torch.Tensor, list[int]]:
    """Normalised patches as Transformers' video processor lays them out, and their grid."""
    if len(frames) % 2:
        frames = [*frames, frames[-1]]
    video = torch.from_numpy(np.stack(frames)).permute(0, 3, 1, 2)[None].float()
    video = (video / 255 - 0.5) / 0.5
    _, count, channels, height, width = video.shape
    grid = count // 2, height // 16, width // 16
    cut = video.view(1, grid[0], 2, channels, grid[1] // 2, 2, 16, grid[2] // 2, 2, 16)
    patches = cut.permute(0, 1, 4, 7, 5, 8, 3, 2, 6, 9).reshape(int(np.prod(grid)), -1)
    return patches, list(grid)


def expected_text(template: Any, parts: list[Any], fps: float) -> str:
    """The prompt, its placeholders replaced as Transformers' Qwen3VLProcessor does."""
    kinds = [{"type": "text", "text": p} if isinstance(p, str) else p for p in parts]
    content = [
        {"type": "video" if isinstance(kind, list) else "image"}
        if not isinstance(kind, dict)
        else kind
        for kind in kinds
    ]
    text: str = template(content)
    for part in parts:
        if isinstance(part, list):
            stamps = ""
            times = [index / fps for index in range(len(part))]
            times += times[-1:] * (len(times) % 2)
            height, width = part[0].shape[:2]
            tokens = height * width // 1024
            for first, second in zip(times[::2], times[1::2], strict=True):
                pads = "<|video_pad|>" * tokens
                stamps += f"<{(first + second) / 2:.1f} seconds>"
                stamps += f"<|vision_start|>{pads}<|vision_end|>"
            text = text.replace("<|vision_start|><|video_pad|><|vision_end|>", stamps, 1)
        elif not isinstance(part, str):
            height, width = part.shape[:2]
            pads = "<|image_pad|>" * (height * width // 1024)
            text = text.replace("<|image_pad|>", pads, 1)
    return text


CASES: dict[str, list[Any]] = {
    "even": ["Look: ", noise(4), "What happens?"],
    "odd": [noise(5, 1), "Hi"],
    "one frame": [noise(1, 2), "Hi"],
    "with a picture": [noise(1, 3, (96, 32))[0], "then", noise(3, 4), "and?"],
    "two": [noise(2, 5), noise(3, 6, (32, 64)), "Compare"],
}


@pytest.mark.parametrize("name", CASES)
def test_parity(vlm: VLM, tiny_checkpoint: tuple[Path, Any], name: str) -> None:
    """Token ids are the reference's, and logits are within TOLERANCE."""
    folder, reference = tiny_checkpoint
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    parts = CASES[name]

    def template(content: list[Any]) -> str:
        turns = [{"role": "user", "content": content}]
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        assert isinstance(text, str)
        return text

    text = expected_text(template, parts, fps=2.0)
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
    content = [
        Video(p) if isinstance(p, list) else p if isinstance(p, str) else ImagePart(p)
        for p in parts
    ]
    request = vlm.prepare([Message("user", tuple(content))], SIZES, SamplingParams(max_tokens=1))
    prompt = request.sequence.prompt
    assert prompt.ids.tolist() == ids[0].tolist()

    patches = [image.content for image in request.images if isinstance(image.content, Patches)]
    engine = vlm.engine
    images = {image.key: image for image in engine.encode(patches)}
    cache = engine.open_cache(1, len(prompt))
    hidden = engine.prefill(cache, [Chunk(0, prompt, images, 0, len(prompt))])
    found = engine.logits(hidden)[0]

    config = reference.config
    types = (ids == config.image_token_id).int() + 2 * (ids == config.video_token_id).int()
    videos = [reference_video(part) for part in parts if isinstance(part, list)]
    inputs: dict[str, Any] = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "mm_token_type_ids": types,
        "pixel_values_videos": torch.cat([pixels for pixels, _ in videos]),
        "video_grid_thw": torch.tensor([grid for _, grid in videos]),
    }
    pictures = [reference_video([p, p]) for p in parts if isinstance(p, np.ndarray)]
    if pictures:
        inputs["pixel_values"] = torch.cat([pixels for pixels, _ in pictures])
        inputs["image_grid_thw"] = torch.tensor([grid for _, grid in pictures])
    with torch.no_grad():
        expected = reference(**inputs).logits[0, -1].numpy()
    assert float(np.abs(found - expected).max()) <= TOLERANCE


def test_a_file_is_a_video_by_its_content(vlm: VLM, tmp_path: Path) -> None:
    path = write_video(tmp_path / "clip.mp4", 20, rate=10)
    answer = vlm.ask(path, "Hi", **SMALL)
    assert vlm.ask(path.read_bytes(), "Hi", **SMALL).text == answer.text
    assert any(note.startswith("video: 4 frames") for note in answer.timings.notes)
    assert answer.usage.image_tokens == 2 * 4  # two pairs of 64×64 px
    assert answer.timings.decode_ms > 0


def test_frames_that_repeat_are_encoded_once(vlm: VLM) -> None:
    frame = noise(1)[0]
    prompt = vlm.prepare([Message("user", (Video([frame] * 6), "Hi"))], SIZES, SamplingParams())
    assert len(prompt.images) == 1
    assert len(prompt.sequence.prompt.images) == 3


def test_a_second_question_encodes_nothing(vlm: VLM, tmp_path: Path) -> None:
    path = write_video(tmp_path / "clip.mkv", 20, rate=10)
    assert vlm.ask(path, "What?", **SMALL).timings.origins["encode"] == "computed"
    assert vlm.ask(path, "Who?", **SMALL).timings.origins["encode"] == "reused"


def test_conversation(vlm: VLM, tmp_path: Path) -> None:
    path = write_video(tmp_path / "clip.mp4", 20, rate=10)
    talk = vlm.conversation()
    first = talk.ask("What happens?", path, **SMALL)
    second = talk.ask("And then?")
    assert second.usage.image_tokens == first.usage.image_tokens
    assert second.usage.cached_tokens > first.usage.image_tokens


def test_a_gif_is_a_picture_unless_it_is_called_a_video(vlm: VLM, tmp_path: Path) -> None:
    frames = [PIL.Image.fromarray(frame) for frame in noise(6)]
    path = tmp_path / "moving.gif"
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=200)
    picture, video = vlm.ask(path, "Hi", **SMALL), vlm.ask(Video(path), "Hi", **SMALL)
    assert "only the first frame is used" in picture.warnings[0]
    assert video.usage.image_tokens > picture.usage.image_tokens
    assert not any("frame" in warning for warning in video.warnings)


def test_a_long_video_leaves_frames_out_with_a_warning(vlm: VLM, tmp_path: Path) -> None:
    path = write_video(tmp_path / "long.mp4", 3000, rate=1)
    answer = vlm.ask(path, "Hi", fps=1.0, max_frames=3000, max_tokens=2, **SMALL)
    assert "of 3000, one every" in answer.warnings[0]
    assert answer.usage.prompt_tokens < vlm.context


def test_options_of_videos(vlm: VLM, tmp_path: Path) -> None:
    path = write_video(tmp_path / "clip.mp4", 100, rate=10)
    one = vlm.ask(path, "Hi", num_frames=2, start=1.0, end=2.0, **SMALL)
    assert any(note.startswith("video: 2 frames") for note in one.timings.notes)
    with pytest.raises(OptionError, match="the video lasts 10"):
        vlm.ask(path, "Hi", start=11.0)
    with pytest.raises(OptionError, match="exclude each other"):
        vlm.ask(path, "Hi", fps=1.0, num_frames=3)
    with pytest.raises(OptionError, match="options of videos, and there is none"):
        vlm.ask(noise(1)[0], "Hi", fps=1.0)
    with pytest.raises(ImageError, match="no pictures"):
        vlm.ask(Video([]), "Hi")
