"""Records a model's logits and states while it answers one question.

Models are compared where their values are comparable, whatever their operators: at the vision
encoder's DeepStack taps and output, in each text layer's keys and values, and in the logits. Keys
and values are one product after the norm of the residual stream, so they show the noise of a
layer's input. The stream is not compared: its few outlier channels would dominate. The graphs are
unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwink.cache.embeddings import as_float16
from qwink.engine.base import Chunk, Engine, NewTokens
from qwink.lab.quality import Float
from qwink.runtime.request import Request
from qwink.runtime.vlm import VLM
from qwink.types import EncodedImage, Patches

MOST_ROWS = 64  # of a prompt's or image's tokens, evenly spaced, to save space


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """One model and one question, along T tokens of an answer.

    `states` maps places in the model to values [tensors, rows, ...]; `logits` are those of each
    token, over the C ids that may be chosen.
    """

    ids: NDArray[np.int64]  # [T]: the answer whose tokens were the input
    logits: Float  # [T, C]
    states: dict[str, Float]
    answer: str  # the model's greedy answer

    def save(self, path: Path) -> None:
        kept: dict[str, Any] = {f"at {place}": state for place, state in self.states.items()}
        kept |= {"ids": self.ids, "logits": self.logits, "answer": np.array(self.answer)}
        np.savez(path, **kept)

    @classmethod
    def load(cls, path: Path) -> Observation:
        with np.load(path) as file:
            states = {name[3:]: file[name] for name in file.files if name.startswith("at ")}
            return cls(file["ids"], file["logits"], states, str(file["answer"]))


def observe(vlm: VLM, request: Request) -> Observation:
    """Answer a request that `VLM.prepare` made for greedy answers. Raises GenerationError."""

    def work() -> Observation:
        walk, sequence = _Walk(vlm, request), request.sequence
        rows = [walk.first]
        pieces = [sequence.accept(walk.first[None])]
        while sequence.finish_reason is None:
            rows.append(walk.after(sequence.generated[-1], len(rows) - 1))
            pieces.append(sequence.accept(rows[-1][None]))
        ids = sequence.generated
        return Observation(np.array(ids), walk.choosable(rows), walk.states(ids), "".join(pieces))

    return vlm.scheduler.call(work)


def observe_along(vlm: VLM, request: Request, ids: Sequence[int]) -> Observation:
    """As `observe`, but the tokens `ids` of another model's answer are the input.

    So each choice is compared after equal tokens, and one early difference counts once. `answer`
    is this model's greedy answer.
    """

    def work() -> Observation:
        walk, sequence = _Walk(vlm, request), request.sequence
        rows = [walk.first, *(walk.after(token, index) for index, token in enumerate(ids[:-1]))]
        states = walk.states(ids)
        # The greedy answer equals `ids` up to the first difference; from there it is decoded.
        pieces = []
        for token, row in zip(ids, rows, strict=True):
            pieces.append(sequence.accept(row[None]))
            if sequence.finish_reason is not None or sequence.generated[-1] != token:
                break
        while sequence.finish_reason is None:
            row = walk.after(sequence.generated[-1], len(sequence.generated) - 1)
            pieces.append(sequence.accept(row[None]))
        return Observation(np.array(ids), walk.choosable(rows), states, "".join(pieces))

    return vlm.scheduler.call(work)


class _Walk:
    """A prompt in a separate cache, continued token by token. Runs on the engine's thread."""

    def __init__(self, vlm: VLM, request: Request) -> None:
        self._engine: Engine = vlm.engine
        self._prompt = prompt = request.sequence.prompt
        self._forbidden = vlm.tokenizer.forbidden_ids(vlm.engine.config.text.vocab_size)
        self._images = {image.key: self._encode(image.content) for image in request.images}
        self._cache: Any = self._engine.open_cache(1, len(prompt) + request.max_tokens)
        chunk = vlm.scheduler.limits.prefill_chunk
        for start in range(0, len(prompt), chunk):
            stop = min(start + chunk, len(prompt))
            chunks = [Chunk(0, prompt, self._images, start, stop)]
            hidden = self._engine.prefill(self._cache, chunks)
        self.first: Float = self._engine.logits(hidden)[0]  # [vocab], after the prompt

    def _encode(self, content: Patches | EncodedImage) -> EncodedImage:
        if isinstance(content, EncodedImage):
            return content
        return as_float16(self._engine.encode([content])[0])  # as the scheduler does

    def after(self, token: int, index: int) -> Float:
        """Logits [vocab] after `token`, number `index` of the answer."""
        length, position = len(self._prompt) + index, self._prompt.next_position + index
        run = NewTokens(0, (token,), length, position)
        logits: Float = self._engine.step(self._cache, [run])[0]
        return logits

    def choosable(self, rows: Sequence[Float]) -> Float:
        """Logits [T, vocab] without the ids that are never chosen."""
        return np.delete(np.stack(rows), self._forbidden, axis=1)

    def states(self, ids: Sequence[int]) -> dict[str, Float]:
        """Values at each place, in the order of computation, after all but the last id."""
        vision = self._engine.config.vision
        states: dict[str, Float] = {}
        for image in self._images.values():
            rows = _spread(image.num_tokens)
            for layer, tap in zip(vision.deepstack_layers, image.deepstack, strict=True):
                place = f"vision, tap after layer {layer + 1} of {vision.depth}"
                states[place] = tap[None, rows].astype(np.float32)
            states["vision, output"] = image.embeds[None, rows].astype(np.float32)
        start, stop = len(self._prompt), len(self._prompt) + len(ids) - 1
        kept: Float = self._cache.read(0, stop)  # [layers, 2, KV heads, tokens, head_dim]
        layers, _, heads, _, width = kept.shape
        phases = {"prompt": _spread(start), "answer": np.arange(start, stop)}
        for phase, tokens in phases.items():
            for group in np.array_split(np.arange(layers), 3):
                if group.size and tokens.size:
                    first, last = group[0] + 1, group[-1] + 1
                    name = f"layer {first}" if first == last else f"layers {first}-{last}"
                    found = kept[group][:, :, :, tokens].reshape(-1, heads, tokens.size, width)
                    states[f"{phase}, text {name}"] = found
        return states


def _spread(count: int) -> NDArray[np.int64]:
    """Indices of at most MOST_ROWS of `count` rows, evenly spaced, the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, MOST_ROWS)).astype(np.int64))
