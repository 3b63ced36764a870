"""What `qwink serve --ray` needs beside the options of one server."""

from __future__ import annotations

import re
from dataclasses import dataclass

from qwink.errors import OptionError


@dataclass(frozen=True, slots=True)
class ReplicaCount:
    """How many replicas run: `least` to `most`, as the load asks."""

    least: int
    most: int

    @classmethod
    def parse(cls, text: str) -> ReplicaCount:
        """N or MIN-MAX. Raises OptionError."""
        match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", text)
        if match:
            least, most = int(match[1]), int(match[2] or match[1])
            if 1 <= least <= most:
                return cls(least, most)
        raise OptionError(
            f"replicas is {text!r}; it must be a number from 1, or two as in 1-4: at least, at most"
        )
