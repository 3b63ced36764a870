"""Passes through the text graphs of an artifact: how tokens become a graph's inputs.

Graphs of our own operators take any slots, with any number of new tokens each. Graphs of ONNX
Runtime's operators take the same number of tokens for each of neighbouring rows of the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from qwink.engine.onnx_cache import OnnxCache

Float = NDArray[np.float32]
Ints = NDArray[np.int64]

# What our operators are told of a pass; LAST_CHUNK is added to the kinds of chunk.
ANSWER, FIRST_CHUNK, NEXT_CHUNK, LAST_CHUNK = 0, 1, 2, 4


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """R new tokens of B sequences, one sequence after the other.

    `starts` are the tokens in each slot before, `stops` those after: their differences add up to R.
    """

    slots: tuple[int, ...]
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    embeds: Float  # [R, D]
    cos: Float  # [R, head_dim / 2]
    sin: Float
    select: Ints  # [L] ascending, the tokens whose hidden states are wanted
    deepstack: Float | None = None  # [taps, R, D], zero where there is no image
    prompt: bool = False
    last: bool = False  # no chunk of the prompt follows

    @property
    def counts(self) -> list[int]:
        """New tokens of each sequence."""
        return [stop - start for start, stop in zip(self.starts, self.stops, strict=True)]


class TextGraph(Protocol):
    """One text graph, prefill or decode, loaded."""

    def run(self, cache: OnnxCache, tokens: Tokens) -> Float:
        """Run new tokens; their keys and values go to the cache. Returns hidden states [L, D]."""


def text_graph(session: ort.InferenceSession) -> TextGraph:
    """The kind of `session`, told from its inputs."""
    names = {value.name for value in session.get_inputs()}
    return RaggedGraph(session) if "slots" in names else BatchGraph(session)


class RaggedGraph:
    """A graph of our own operators."""

    def __init__(self, session: ort.InferenceSession) -> None:
        self._session, self._num_taps = session, _num_taps(session)

    def run(self, cache: OnnxCache, tokens: Tokens) -> Float:
        """As `TextGraph.run`."""
        spans = zip(tokens.slots, tokens.starts, tokens.stops, strict=True)
        # The operators may keep a prompt's keys in tiles from one chunk to the next.
        continues = [cache.extend(*span, prompt=tokens.prompt) for span in spans]
        kind = ANSWER
        if tokens.prompt:
            kind = NEXT_CHUNK if all(continues) else FIRST_CHUNK
            kind += LAST_CHUNK * tokens.last
        binding = cache.binding(self._session, 0, cache.num_slots)
        rows = [cache.row(slot) for slot in tokens.slots]
        bind = binding.bind_cpu_input
        bind("embeds", tokens.embeds)
        bind("select", tokens.select)
        bind("rows", np.arange(len(tokens.embeds)))
        bind("starts", np.cumsum([0, *tokens.counts], dtype=np.int32))
        bind("lengths", np.asarray(tokens.stops, np.int32))
        bind("slots", np.asarray(rows, np.int32))
        bind("cos", tokens.cos)
        bind("sin", tokens.sin)
        bind("prompt", np.asarray(kind, np.int32))
        if self._num_taps:
            bind("deepstack", _deepstack(tokens, self._num_taps))
        return _hidden(self._session, binding)


class BatchGraph:
    """A graph of ONNX Runtime's operators.

    Prompts run one after the other. Of answers with several new tokens, the first tokens of all
    sequences run together, then the second ones, and so on, as they would without drafts.
    """

    def __init__(self, session: ort.InferenceSession) -> None:
        self._session, self._num_taps = session, _num_taps(session)

    def run(self, cache: OnnxCache, tokens: Tokens) -> Float:
        """As `TextGraph.run`."""
        hidden = np.empty((len(tokens.select), tokens.embeds.shape[1]), np.float32)
        for group, span in _batches(tokens):
            wanted = np.flatnonzero(np.isin(tokens.select, span))
            select = np.searchsorted(span, tokens.select[wanted])
            found = self._batch(cache, tokens, group, span, select)
            hidden[wanted] = found[: len(wanted)]
        return hidden

    def _batch(
        self, cache: OnnxCache, tokens: Tokens, group: list[int], span: Ints, select: Ints
    ) -> Float:
        """Run the tokens `span` of the sequences `group`, equally many each.

        Returns the hidden states of those of `select`, which counts within the span.
        """
        shape = len(group), len(span) // len(group)
        firsts = np.cumsum([0, *tokens.counts])[group]
        past = span[:: shape[1]] - firsts + np.asarray(tokens.starts)[group]
        totals = past + shape[1]
        slots = [tokens.slots[index] for index in group]
        for slot, start, stop in zip(slots, past.tolist(), totals.tolist(), strict=True):
            cache.extend(slot, start, stop, prompt=tokens.prompt)
        binding = cache.binding(self._session, cache.arrange(slots), len(group))
        bind = binding.bind_cpu_input
        bind("embeds", tokens.embeds[span].reshape(*shape, -1))
        bind("select", select if len(select) else np.zeros(1, np.int64))
        bind("rows", np.arange(len(span)).reshape(shape))
        bind("lengths", (totals - 1).astype(np.int32))
        bind("total", np.asarray(totals.max(), np.int32))
        # The operator reads the rows named above only, but wants one for each token in the cache.
        num_rows = max(len(span), int(totals.max()))
        for name, table in (("cos", tokens.cos), ("sin", tokens.sin)):
            padded = np.zeros((num_rows, table.shape[1]), np.float32)
            padded[: len(span)] = table[span]
            bind(name, padded)
        if self._num_taps:
            bind("deepstack", _deepstack(tokens, self._num_taps)[:, span])
        return _hidden(self._session, binding)


def _batches(tokens: Tokens) -> Iterator[tuple[list[int], Ints]]:
    """Sequences that run together, and which tokens of theirs."""
    counts, firsts = tokens.counts, np.cumsum([0, *tokens.counts])
    if tokens.prompt:
        for index, count in enumerate(counts):
            yield [index], np.arange(firsts[index], firsts[index] + count)
        return
    for step in range(max(counts)):
        group = [index for index, count in enumerate(counts) if step < count]
        yield group, firsts[group] + step


def _num_taps(session: ort.InferenceSession) -> int:
    """Of DeepStack; 0 for a graph that takes no images."""
    shapes = {value.name: value.shape for value in session.get_inputs()}
    return int(shapes["deepstack"][0]) if "deepstack" in shapes else 0


def _deepstack(tokens: Tokens, num_taps: int) -> Float:
    if tokens.deepstack is not None:
        return tokens.deepstack
    return np.zeros((num_taps, *tokens.embeds.shape), np.float32)


def _hidden(session: ort.InferenceSession, binding: ort.IOBinding) -> Float:
    binding.bind_output("hidden")
    session.run_with_iobinding(binding)
    hidden: Float = binding.get_outputs()[-1].numpy()  # bound last
    return hidden
