"""Which layout and which weights an artifact gets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qwink.errors import OptionError
from qwink.export.recipe import RECIPES
from qwink.export.target import Target, choose_target
from qwink.native import LAYOUTS, NATIVE_LAYOUT, Capabilities

OLD = Capabilities("onnxruntime", (), ("onnxruntime",), 1, 64, "no compiler")
NEW = Capabilities("avx2", ("avx2",), LAYOUTS, 2, 64, "")


def test_the_fastest_layout_that_loads() -> None:
    fast = RECIPES["fast"]
    assert choose_target(fast, here=OLD) == Target("onnxruntime", 64)
    assert choose_target(fast, here=NEW) == Target(NATIVE_LAYOUT, 127)  # ours are exact everywhere
    assert choose_target(fast, "onnxruntime", NEW) == Target("onnxruntime", 64)
    assert choose_target(fast, "onnxruntime", replace(NEW, int8_limit=127)).int8_limit == 127
    assert choose_target(fast, NATIVE_LAYOUT, OLD) == Target(
        NATIVE_LAYOUT, 127
    )  # for another machine


def test_fp32_depends_on_no_processor() -> None:
    exact = RECIPES["exact"]
    assert choose_target(exact, here=OLD) == choose_target(exact, here=NEW) == Target()
    assert choose_target(exact, "onnxruntime", NEW) == Target()
    with pytest.raises(OptionError, match="recipe exact is fp32"):
        choose_target(exact, NATIVE_LAYOUT, NEW)
