"""The training model gives the same logits as Transformers."""

from pathlib import Path

import pytest
import torch

from training.nano import data, export
from training.nano import tokenizer as tk
from training.nano.model import Nano, NanoConfig
from training.nano.prompt import conversation

transformers = pytest.importorskip("transformers")

SMALL = NanoConfig(
    hidden_size=64,
    intermediate_size=96,
    layers=3,
    heads=4,
    kv_heads=2,
    vision_depth=3,
    vision_hidden=64,
    vision_heads=2,
    vision_intermediate=96,
    position_embeddings=49,
    deepstack=(0, 1),
)


@pytest.fixture(scope="module")
def small() -> Nano:
    """A small model whose weights are large enough that every part changes the logits."""
    torch.manual_seed(3)
    nano = Nano(SMALL).eval()
    with torch.no_grad():
        for parameter in nano.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
        nano.model.visual.pos_embed.weight.normal_()
    return nano


@pytest.fixture(scope="module")
def folder(small: Nano, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model as a Hugging Face folder, in fp32."""
    path = tmp_path_factory.mktemp("nano") / "hf"
    export.write(small, path, torch.float32)
    return path


@pytest.fixture(scope="module")
def reference(folder: Path) -> torch.nn.Module:
    """The same model in Transformers."""
    model: torch.nn.Module = transformers.Qwen3VLForConditionalGeneration.from_pretrained(
        folder, dtype=torch.float32
    )
    return model.eval()


@pytest.mark.parametrize("size", [(64, 256), (96, 64), (224, 224), (32, 128)])
@pytest.mark.parametrize("question_first", [False, True])
def test_logits(
    small: Nano, reference: torch.nn.Module, size: tuple[int, int], question_first: bool
) -> None:
    """Two pictures of one size, in one batch here, one by one in Transformers."""
    height, width = size
    grid = (height // 16, width // 16)
    visual = grid[0] * grid[1] // 4
    turns = [("What does it say?", "Total 42.50"), ("Read this.", "Total")]
    line, _ = conversation(turns, visual, "Answer briefly.", question_first)
    ids = torch.tensor([line, line])
    patches = torch.randint(0, 256, (2, grid[0] * grid[1], 768), dtype=torch.uint8)
    positions, slots = data.place(line, grid)
    with torch.no_grad():
        features = small.encode_images(patches, grid)
        hidden = small.hidden_states(
            ids, positions[:, None].expand(-1, 2, -1), slots.expand(2, -1), features
        )
        ours = small.logits(hidden)
        both_frames = (patches.float() / 127.5 - 1).view(2, -1, 3, 1, 256).expand(-1, -1, -1, 2, -1)
        for i in range(2):
            theirs = reference(
                input_ids=ids[i : i + 1],
                pixel_values=both_frames[i].reshape(-1, 1536),
                image_grid_thw=torch.tensor([[1, *grid]]),
                mm_token_type_ids=(ids[i : i + 1] == tk.IMAGE).long(),
            ).logits[0]
            assert (ours[i] - theirs).abs().max() <= 1e-4
            assert ours[i].std() > 0.1


def test_names(small: Nano, folder: Path) -> None:
    """Transformers finds all its tensors in the folder, and no others."""
    _, report = transformers.Qwen3VLForConditionalGeneration.from_pretrained(
        folder, output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert all(name.startswith("model.") for name in small.state_dict())
