"""`qwink`, and `python -m qwink`: the command line."""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point of the command `qwink`."""
    if sys.argv[1:2] == ["serve"]:  # before imports that take long
        from qwink.signals import leave_at_once

        leave_at_once()
    from qwink.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
