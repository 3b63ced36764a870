"""Typefaces: those that nano is trained on, and families that only its evaluation uses."""

import os
import random
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path

from PIL import ImageFont

FONTS = Path(os.environ.get("NANO_FONTS", "/usr/share/fonts"))
# In these, small l, capital I and the vertical bar look alike.
PLAIN = (
    "DejaVuSans-*.ttf", "DejaVuSans.ttf", "DejaVuSansCondensed*.ttf", "LiberationSans-*.ttf",
    "Carlito-*.ttf", "NotoSans-*.ttf", "NotoSansDisplay-*.ttf", "OpenSans-*.ttf", "Roboto-*.ttf",
    "RobotoCondensed-*.ttf", "Lato-*.ttf", "Cantarell-*.otf", "Quicksand-*.ttf", "FreeSans*.ttf",
    "Dosis-*.otf",
)  # fmt: skip
CLEAR = (
    "DejaVuSansMono*.ttf", "DejaVuSerif*.ttf", "LiberationSerif-*.ttf", "LiberationMono-*.ttf",
    "NotoSerif-*.ttf", "NotoSerifDisplay-*.ttf", "FiraCode-*.ttf", "Inconsolata.otf",
    "Caladea-*.ttf", "Hack-*.ttf", "LinLibertine_R*.otf", "FreeSerif*.ttf", "FreeMono*.ttf",
    "Vollkorn-*.ttf", "Courier Prime*.otf",
)  # fmt: skip
# Families that no training picture has.
UNSEEN_PLAIN = ("Cabin-*.otf", "Karla-*.otf", "ClearSans-*.ttf")
UNSEEN_CLEAR = ("EBGaramond12-*.otf", "JetBrainsMono-*.ttf", "JunicodeTwoBeta-*.otf")
# Hairlines, wide cuts, small capitals and doubles.
_LEFT_OUT = ("*Thin*", "*ExtraLight*", "*Hairline*", "*Expanded*", "*RZ*", "*Black*")


def pick(rng: random.Random, *, plain: bool, unseen: bool = False) -> str:
    """The file of a random face of a random family. Raises FileNotFoundError."""
    families = (UNSEEN_PLAIN if plain else UNSEEN_CLEAR) if unseen else PLAIN if plain else CLEAR
    return rng.choice(find(rng.choice(families)))


@lru_cache
def find(pattern: str) -> tuple[str, ...]:
    """Files of a family. Raises FileNotFoundError if it is not installed."""
    files = {path.name: str(path) for path in sorted(FONTS.rglob(pattern))}
    found = [files[name] for name in files if not any(fnmatch(name, out) for out in _LEFT_OUT)]
    if not found:
        raise FileNotFoundError(
            f"no {pattern} in {FONTS}; install the font packages that README.md names, or set "
            "NANO_FONTS"
        )
    return tuple(found)


@lru_cache(maxsize=4096)
def typeface(path: str, size: int) -> ImageFont.FreeTypeFont:
    """A font by its file."""
    return ImageFont.truetype(path, size)
