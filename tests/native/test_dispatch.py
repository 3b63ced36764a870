"""Which set of kernels operators use."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.native.nodes import choose, in_use, run, session, supported

SETS = ["amx", "avx512", "avxvnni", "avx2"]


def test_sets_are_listed_fastest_first(emulated_library: Path) -> None:
    names = supported(emulated_library)
    assert names == [name for name in SETS if name in names]
    assert {"amx", "avx512"} <= set(names)
    assert in_use(emulated_library) == names[0]


def test_a_set_is_chosen_by_name_until_the_fastest_is_chosen_again(emulated_library: Path) -> None:
    for name in supported(emulated_library):
        assert choose(emulated_library, name)
        assert in_use(emulated_library) == name
    assert choose(emulated_library, None)
    assert in_use(emulated_library) == supported(emulated_library)[0]
    assert not choose(emulated_library, "sse2")
    assert in_use(emulated_library) == supported(emulated_library)[0]


def test_operators_keep_the_set_they_were_created_with(emulated_library: Path) -> None:
    """A prompt's attention has other bits with AMX than without."""
    rng = np.random.default_rng(0)
    feeds = {name: rng.normal(size=(9, 32)).astype(np.float32) for name in "qkv"}
    feeds |= {name: np.ones((9, 16), np.float32) for name in ("cos", "sin")}
    attributes = {"columns": 32, "num_heads": 1}
    kinds = [(name, np.float32) for name in feeds]
    made = {}
    for name in ("amx", "avx512"):
        assert choose(emulated_library, name)
        made[name] = session(emulated_library, "ImageAttention", kinds, **attributes)
    tiles, vectors = (made[name].run(["out0"], feeds)[0] for name in ("amx", "avx512"))
    assert choose(emulated_library, None)
    assert not np.array_equal(tiles, vectors)
    np.testing.assert_array_equal(
        run(emulated_library, "ImageAttention", feeds, **attributes)[0], tiles
    )
