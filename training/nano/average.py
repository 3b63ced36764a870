"""Average the weights of two exported folders, of a model and of what it became by more training.

    python -m training.nano.average BEFORE AFTER OUT --share 0.8

The average keeps more of what the first could do than the second does (Wortsman et al., "Robust
fine-tuning of zero-shot models", 2022).
"""

import argparse
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file


def average(before: Path, after: Path, out: Path, share: float) -> None:
    """Write `out`: a copy of `after` whose weights are `share` of its own, the rest of `before`."""
    old, new = (load_file(folder / "model.safetensors") for folder in (before, after))
    shutil.copytree(after, out)
    mixed = {
        name: (share * weight.float() + (1 - share) * old[name].float()).to(weight.dtype)
        for name, weight in new.items()
    }
    save_file(mixed, out / "model.safetensors", metadata={"format": "pt"})


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("out", type=Path, help="a new folder")
    parser.add_argument("--share", type=float, default=0.8, help="of the weights of AFTER")
    args = parser.parse_args()
    average(args.before, args.after, args.out, args.share)


if __name__ == "__main__":
    main()
