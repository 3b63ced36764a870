"""What an answer may say next, as its sequence asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Constraint(Protocol):
    """Follows one answer token by token. Used by one thread at a time."""

    def forced(self) -> tuple[int, ...]:
        """The tokens that come next without any choice; often none."""

    def mask(self) -> NDArray[np.bool_]:
        """Which tokens [vocab] may come next, tokens that end the answer included.

        Only where none is forced. Raises GenerationError when it cannot be computed.
        """

    def accept(self, token: int) -> None:
        """Note that a token was generated, which `forced` or `mask` allowed."""

    def num_allowed(self, tokens: Sequence[int]) -> int:
        """How many of the tokens could come next, one after the other; changes nothing."""

    @property
    def ends(self) -> bool:
        """Whether nothing can follow the forced tokens: with them, the answer is whole."""

    @property
    def stopped(self) -> bool:
        """Whether nothing can follow: the answer is whole."""

    @property
    def complete(self) -> bool:
        """Whether the answer so far is a whole one."""
