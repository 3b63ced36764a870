"""Prompts, pictures and the tokenizer."""

import random
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from training.nano import data, evaluate, export, pictures
from training.nano import questions as qs
from training.nano import tokenizer as tk
from training.nano.model import Nano, NanoConfig
from training.nano.prompt import conversation


def test_tokenizer_round_trip() -> None:
    """Byte tokens, merged words and special tokens all decode to the original text."""
    text = "Straße 42.50 € “quoted”\n<|im_end|>"
    assert tk.build().decode(list(tk.encode(text)), skip_special_tokens=False) == text
    assert tk.decode(tk.encode_bytes("Total 42.50")) == "Total 42.50"
    assert tk.encode("<|im_end|>") == (tk.STOP,)
    assert tk.build().get_vocab_size() == 256 + tk.MERGES + len(tk.SPECIALS)
    assert tk.build().get_vocab_size() <= NanoConfig().vocab_size


def test_prompt_is_the_chat_template(tmp_path: Path) -> None:
    """Training prompts equal the exported template and tokenizer, one pad per picture."""
    transformers = pytest.importorskip("transformers")
    export.write(Nano(NanoConfig()), tmp_path / "hf")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    messages = [
        {"role": "system", "content": "Answer briefly."},
        {
            "role": "user",
            "content": [{"type": "image"}, {"type": "text", "text": "What does it say?"}],
        },
        {"role": "assistant", "content": "Zx9"},
        {"role": "user", "content": "Read the text."},
    ]
    theirs = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=False
    )
    turns = [("What does it say?", "Zx9"), ("Read the text.", "")]
    ours, learnt = conversation(turns, 1, "Answer briefly.")
    assert ours[:-1] == theirs
    assert [token for token, one in zip(ours, learnt, strict=True) if one] == [
        *tk.encode_bytes("Zx9"), tk.STOP, tk.STOP
    ]  # fmt: skip


def test_patches_match_transformers() -> None:
    """Patches have the merge order and channel order of the published image processor."""
    pixels = np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8)
    ours = data.patchify(Image.fromarray(pixels))
    blocks = pixels.transpose(2, 0, 1).reshape(3, 2, 2, 16, 3, 2, 16)
    theirs = blocks.transpose(1, 4, 2, 5, 0, 3, 6).reshape(24, 768)
    assert (ours == theirs).all()


def test_cells() -> None:
    """A symbol is in the cell of its centre, in reading order."""
    found = data.cells([(3, 40, "a"), (31, 40, "b"), (33, 40, "c")], (4, 8))
    assert found.shape == (8, data.SLOTS)
    assert found[4, :2].tolist() == [data.SYMBOL["a"], data.SYMBOL["b"]]
    assert found[5, 0] == data.SYMBOL["c"]


def test_held_out_strings_are_never_trained_on() -> None:
    """Training and evaluation use different strings; the same seed gives the same sample."""
    rng = random.Random(1)
    trained = [pictures.line_picture(64, 256, rng, 0.0, False) for _ in range(50)]
    assert not any(qs.held_out(s.turns[0][1]) for s in trained if s.task == "read")
    first, again = (list(evaluate.held_out(32)) for _ in range(2))
    assert [q.answer for q in first] == [q.answer for q in again]
    assert all(qs.held_out(q.answer) for q in first if q.task == "read")
    assert all(q.image.width % 32 == 0 and q.image.height % 32 == 0 for q in first)


def test_batch_shapes() -> None:
    """The loss mask covers the answers; every visual token has one slot."""
    rng = random.Random(2)
    samples = [pictures.sample((64, 128), rng) for _ in range(6)]
    batch = data.collate(samples, rng, varied=True)
    assert batch.patches.shape == (6, 32, 768)
    assert batch.cells.shape == (6, 8, data.SLOTS)
    assert (batch.slots >= 0).sum(1).tolist() == [8] * 6
    assert (batch.ids[batch.slots >= 0] == tk.IMAGE).all()
    for sample, ids, learnt in zip(samples, batch.ids, batch.learnt, strict=True):
        assert tk.decode(ids[learnt].tolist()).startswith(sample.turns[0][1])


def test_distance() -> None:
    """Edit distance counts insertions, deletions and replacements."""
    assert evaluate.distance("kitten", "sitting") == 3
    assert evaluate.distance("", "abc") == 3
