"""Keys and values for graphs of ONNX Runtime, read and extended in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from qwink.engine.reserve import Reserved
from qwink.model.config import ModelConfig


class OnnxCache:
    """[layers, 2, rows, KV heads, capacity, head_dim], one row for each slot.

    Memory is taken from the system as tokens are written: capacity is an upper bound, not a
    price. Graphs made of our own operators find a slot by its row's number. Those made of ONNX
    Runtime's operators read neighbouring rows as one batch, hence `arrange`.
    """

    grows = True

    def __init__(
        self, config: ModelConfig, num_slots: int, capacity: int, dtype: np.dtype[Any]
    ) -> None:
        text = config.text
        self.num_slots, self.capacity = num_slots, capacity
        self.bytes_per_token = (
            2 * text.num_layers * text.num_kv_heads * text.head_dim * dtype.itemsize
        )
        shape = (text.num_layers, 2, num_slots, text.num_kv_heads, capacity, text.head_dim)
        self._memory = Reserved(shape, dtype)
        self._data = self._memory.array
        self._rows = list(range(num_slots))  # the row of each slot
        self._written = [0] * num_slots  # tokens of each slot that may take memory
        # The prompt that the last chunk belonged to: its slot, and its tokens there so far.
        self._prompt: tuple[int, int] | None = None
        # Binding a hundred tensors costs as much as a layer, so bindings are kept.
        self._bindings: dict[tuple[int, int, int], ort.IOBinding] = {}

    @property
    def num_bytes(self) -> int:
        """Memory that the tokens written so far take, up to a page for each head."""
        return sum(self._written) * self.bytes_per_token

    def binding(self, session: ort.InferenceSession, row: int, count: int) -> ort.IOBinding:
        """A binding of `session` whose past and present are rows `row` to `row + count`."""
        key = (id(session), row, count)
        if key not in self._bindings:
            binding = session.io_binding()
            for layer, pair in enumerate(self._data):
                for name, tensor in zip(("key", "value"), pair, strict=True):
                    batch = tensor[row : row + count]
                    place = ("cpu", 0, batch.dtype, batch.shape, batch.ctypes.data)
                    binding.bind_input(f"past_{name}_{layer}", *place)
                    binding.bind_output(f"present_{name}_{layer}", *place)
            self._bindings[key] = binding
        return self._bindings[key]

    def row(self, slot: int) -> int:
        """Where a slot lies."""
        return self._rows[slot]

    def arrange(self, slots: list[int]) -> int:
        """Make the rows of `slots` neighbours in this order; returns the first row."""
        rows = [self._rows[slot] for slot in slots]
        first = min(rows[0], self.num_slots - len(slots))
        for row, slot in enumerate(slots, first):
            self._swap(slot, self._rows.index(row))
        return first

    def extend(self, slot: int, start: int, stop: int, *, prompt: bool) -> bool:
        """Note that a pass writes tokens `start` to `stop` of a slot.

        Returns whether it is the next chunk of the prompt that the last chunk belonged to, with
        the slot untouched in between.
        """
        continues = prompt and self._prompt == (slot, start)
        if prompt:
            self._prompt = (slot, stop)
        else:
            self._touch(slot)
        self._written[slot] = max(self._written[slot], stop)
        return continues

    def copy(self, source: int, target: int, num_tokens: int) -> None:
        """Overwrite the first tokens of slot `target` with those of slot `source`."""
        self._touch(target)
        rows = self._rows[source], self._rows[target]
        self._data[:, :, rows[1], :, :num_tokens] = self._data[:, :, rows[0], :, :num_tokens]
        self._written[target] = max(self._written[target], num_tokens)

    def read(self, slot: int, num_tokens: int) -> NDArray[np.float32]:
        """A copy of a slot's first tokens, to be looked at: [layers, 2, KV heads, tokens, d]."""
        return self._data[:, :, self._rows[slot], :, :num_tokens].astype(np.float32)

    def truncate(self, slot: int, num_tokens: int) -> None:
        """Keep the first tokens of a slot; return the memory behind them to the system."""
        self._touch(slot)
        if self._written[slot] <= num_tokens:
            return
        num_layers, _, num_rows, num_heads, capacity, size = self._data.shape
        token_bytes = size * self._data.itemsize
        for pair in range(2 * num_layers):
            for head in range(num_heads):
                start = ((pair * num_rows + self._rows[slot]) * num_heads + head) * capacity
                self._memory.release(
                    (start + num_tokens) * token_bytes, (start + self._written[slot]) * token_bytes
                )
        self._written[slot] = num_tokens

    def _touch(self, slot: int) -> None:
        """A slot is changed by something else than the next chunk of its prompt."""
        if self._prompt is not None and self._prompt[0] == slot:
            self._prompt = None

    def _swap(self, slot: int, other: int) -> None:
        """Exchange the rows of two slots."""
        if slot == other:
            return
        self._touch(slot)
        self._touch(other)
        num_tokens = max(self._written[slot], self._written[other])
        a, b = self._rows[slot], self._rows[other]
        first = self._data[:, :, a, :, :num_tokens]
        second = self._data[:, :, b, :, :num_tokens]
        kept = first.copy()
        first[...] = second
        second[...] = kept
        self._rows[slot], self._rows[other] = b, a
        self._written[slot] = self._written[other] = num_tokens
