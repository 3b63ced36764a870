"""`python -m qwink`: the command line."""

from __future__ import annotations

from qwink.cli import main

if __name__ == "__main__":
    main()
