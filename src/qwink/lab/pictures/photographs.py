"""Photographs from scikit-image and scikit-learn, and pictures made of them.

Only files of the two packages are used; nothing is downloaded.
"""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import PIL.Image

from qwink.errors import OptionError
from qwink.extras import install_command
from qwink.lab.pictures.entry import Entry, Make
from qwink.types import Task

FOLDERS = {"skimage": "data", "sklearn": "datasets/images"}


def photograph(name: str) -> PIL.Image.Image:
    """An RGB picture; `name` is its package and file, such as "skimage/coffee.png".

    Raises OptionError when the package is missing.
    """
    package, _, file = name.partition("/")
    spec = find_spec(package)  # importing it would take a second
    if spec is None or not spec.submodule_search_locations:
        raise OptionError(
            f"the photographs of the ladder need the package {package}; "
            f"install them with: {install_command('bench')}"
        )
    path = Path(spec.submodule_search_locations[0]) / FOLDERS[package] / file
    if not path.is_file():
        raise OptionError(f"{path} is missing; install {package} anew")
    with PIL.Image.open(path) as image:
        return image.convert("RGB")


def enlarged(name: str, size: tuple[int, int], seed: int) -> PIL.Image.Image:
    """A photograph cropped and enlarged to `size`, with noise: as large as a camera's files."""
    image = photograph(name)
    scale = max(size[0] / image.width, size[1] / image.height)
    whole = round(image.width * scale), round(image.height * scale)
    image = image.resize(whole, PIL.Image.Resampling.BICUBIC).crop((0, 0, *size))
    return _noisy(image, 5, seed)


def darkened(name: str, exposure: float, seed: int) -> PIL.Image.Image:
    """A photograph multiplied by `exposure`, with much noise, as taken in the dark."""
    image = photograph(name)
    return _noisy(image.point(lambda value: value * exposure), 9, seed)


def panorama(names: tuple[str, ...], size: tuple[int, int]) -> PIL.Image.Image:
    """Photographs side by side, as wide as `size`."""
    canvas = PIL.Image.new("RGB", size)
    width = size[0] // len(names)
    for index, name in enumerate(names):
        image = photograph(name)
        height = max(size[1], round(image.height * width / image.width))
        canvas.paste(
            image.resize((width, height), PIL.Image.Resampling.BICUBIC), (index * width, 0)
        )
    return canvas


def _noisy(image: PIL.Image.Image, strength: float, seed: int) -> PIL.Image.Image:
    """Add noise of standard deviation `strength`, one tile of it repeated over the picture."""
    pixels = np.asarray(image).astype(np.int16)
    noise = np.random.default_rng(seed).normal(0, strength, (509, 509, 3)).astype(np.int16)
    height, width, _ = pixels.shape
    repeats = -(-height // 509), -(-width // 509), 1
    pixels += np.tile(noise, repeats)[:height, :width]
    return PIL.Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


DESCRIBE = "Describe the picture in one sentence."
WHERE = "Where in the picture is the main object?"
COLOUR = "What colour is most of the picture?"


def _entry(kind: str, name: str, task: Task, question: str, make: Make, suffix: str) -> Entry:
    return Entry(name, kind, task, question, COLOUR, None, make, suffix)


def _taken(file: str, task: Task, question: str) -> Entry:
    path = Path(file)
    return _entry("photograph", path.stem, task, question, partial(photograph, file), path.suffix)


def _dark(file: str, task: Task, exposure: float, seed: int) -> Entry:
    question = WHERE if task == "locate" else DESCRIBE
    make = partial(darkened, file, exposure, seed)
    return _entry("low light", f"dark-{Path(file).stem}", task, question, make, ".jpg")


def _large(file: str, task: Task, question: str, size: tuple[int, int], seed: int) -> Entry:
    name = f"large-{size[0] * size[1] / 1e6:.0f}mp"
    return _entry("large", name, task, question, partial(enlarged, file, size, seed), ".jpg")


PHOTOGRAPHS = (
    _taken("skimage/astronaut.png", "describe", DESCRIBE),
    _taken("sklearn/china.jpg", "describe", DESCRIBE),
    _taken("skimage/motorcycle_left.png", "locate", WHERE),
    _taken("skimage/chelsea.png", "frame", "What animal is shown?"),
    _taken("sklearn/flower.jpg", "describe", DESCRIBE),
    _taken("skimage/coins.png", "locate", "How many coins are there?"),
    _taken("skimage/rocket.jpg", "frame", "What is happening?"),
    _taken("skimage/coffee.png", "describe", DESCRIBE),
    _taken("skimage/retina.jpg", "describe", DESCRIBE),
    _taken("skimage/camera.png", "frame", "What is the man doing?"),
    _taken("skimage/hubble_deep_field.jpg", "describe", DESCRIBE),
    _taken("skimage/ihc.png", "locate", WHERE),
)
LOW_LIGHT = (
    _dark("skimage/coffee.png", "describe", 0.18, 1),
    _dark("sklearn/china.jpg", "describe", 0.12, 2),
    _dark("skimage/motorcycle_left.png", "locate", 0.15, 3),
    _dark("skimage/astronaut.png", "describe", 0.2, 4),
)
LARGE = (
    _large("sklearn/flower.jpg", "describe", DESCRIBE, (4000, 3000), 5),
    _large("skimage/astronaut.png", "locate", WHERE, (6000, 4000), 6),
    _large("sklearn/china.jpg", "describe", DESCRIBE, (8000, 6000), 7),
    _large("skimage/chelsea.png", "frame", "What is shown?", (4928, 3264), 8),
)
SIGHTS = "sklearn/china.jpg", "skimage/rocket.jpg", "skimage/coffee.png", "sklearn/flower.jpg"
WIDE = (
    _entry(
        "wide",
        "wide-panorama",
        "describe",
        DESCRIBE,
        partial(panorama, SIGHTS, (4000, 640)),
        ".jpg",
    ),
)
