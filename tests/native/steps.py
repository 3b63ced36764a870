"""Steps of one TextAttention, whose instance and cache outlive each: chunks of prompts that go on
or do not, answers between them, and lists that do not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort

from tests.native.nodes import session
from tests.native.random_cases import Random, below, matrix, pick, sequences, text

NUM_STEPS = 8
FIRST, CONTINUES, LAST = 1, 2, 4
KINDS = (0, FIRST, FIRST, FIRST | LAST, CONTINUES, CONTINUES, CONTINUES, CONTINUES | LAST, 3)


def run_steps(library: Path, rng: Random) -> list[bool]:
    """Whether each step ran, rather than being refused."""
    case = text(rng)
    inputs = {**case.inputs, "prompt": np.array(0, np.int32)}
    kinds = [(name, value.dtype) for name, value in inputs.items() if value is not None]
    one = session(library, case.op, kinds, **case.attributes)
    caches = [ort.OrtValue.ortvalue_from_numpy(inputs[f"past_{name}"]) for name in ("key", "value")]
    cache = inputs["past_key"]
    table = inputs["cos"]
    assert cache is not None
    assert table is not None
    num_slots, num_kv_heads, capacity, size = cache.shape
    widths = {"q": int(case.attributes["num_heads"]), "k": num_kv_heads, "v": num_kv_heads}
    panels = int(case.attributes["panels"])
    before = 0  # tokens of the prompt that is under way, in slot 0
    ran = []
    for _ in range(NUM_STEPS):
        kind = pick(rng, KINDS)
        if kind & CONTINUES or below(rng, 2):  # one chunk, which mostly continues the last
            past = before if below(rng, 4) else below(rng, capacity)
            new = below(rng, capacity - past + 2)  # may be one too many
            lists = {
                "starts": np.array([0, new], np.int32),
                "lengths": np.array([past + new], np.int32),
                "slots": np.zeros(1, np.int32),
            }
            before = past + new if past + new < capacity else 0
        else:
            lists = sequences(rng, num_slots, capacity)
        num_rows = int(lists["starts"][-1])
        rows = rng.integers(len(table) + (below(rng, 20) == 0), size=num_rows)
        fresh = {name: matrix(rng, panels, num_rows, w * size) for name, w in widths.items()}
        prompt = np.array(kind, np.int32)
        binding = one.io_binding()
        for name, value in (inputs | fresh | lists | {"rows": rows, "prompt": prompt}).items():
            if not name.startswith("past_"):
                binding.bind_cpu_input(name, value)
        for name, value in zip(("key", "value"), caches, strict=True):
            binding.bind_ortvalue_input(f"past_{name}", value)
        binding.bind_output("out0", "cpu")
        binding.bind_ortvalue_output("out1", caches[0])
        binding.bind_ortvalue_output("out2", caches[1])
        binding.bind_output("out3", "cpu")
        try:
            one.run_with_iobinding(binding)
            ran.append(True)
        except RuntimeError as error:
            if "qwink: " not in str(error):
                raise
            ran.append(False)
    return ran
