"""More varied training pictures: many faces, long lines, Latin-1, slants, skew and uneven light."""

import io
import math
import random

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from . import faces
from . import questions as qs
from .faces import typeface
from .pictures import FILTERS, Colour, Sample, ink_colours, shape_picture, stretch
from .questions import DIGITS, WORDS, cased, date

MARKS = ".,:;!?-'\"()/&%$#@+*=_[]<>|\\€£§°"
ACCENTED = "äöüÄÖÜßéèêëàâçñíóúôîûøåæÉÀÇØÅ"
CHARACTERS = qs.LETTERS + DIGITS + MARKS + ACCENTED


def price(rng: random.Random) -> str:
    """A number, often with a currency or percent sign."""
    whole = rng.randint(0, 10 ** rng.randint(1, 4))
    body = f"{whole}.{rng.randint(0, 99):02d}"
    if whole > 999 and rng.random() < 0.5:
        body = f"{whole:,}.{rng.randint(0, 99):02d}"
    if rng.random() < 0.15:
        body = body.replace(",", " ").replace(".", ",")
    forms = ("{}", "${}", "{}", "{} USD", "{}%", "-{}", "= {}", "{} €", "€{}", "£{}", "{} EUR")
    return rng.choice(forms).format(body)


def accented(word: str, rng: random.Random) -> str:
    """A word with some of its vowels and others replaced by letters of Latin-1."""
    turns = {"a": "äàâå", "e": "éèêë", "i": "íî", "o": "öóôø", "u": "üúû", "c": "ç", "n": "ñ"}
    return "".join(
        rng.choice(turns[letter]) if letter in turns and rng.random() < 0.4 else letter
        for letter in word
    )


def long_line(rng: random.Random, longest: int) -> str:
    """Words, names, numbers and prices as in receipts, forms and text."""
    parts: list[str] = []
    kind = rng.random()
    if kind < 0.3:  # an item of a receipt
        if rng.random() < 0.5:
            parts.append(rng.choice(("{}", "{} x", "{}x")).format(rng.randint(1, 12)))
        parts += [cased(rng.choice(WORDS), rng) for _ in range(rng.randint(1, 3))]
        parts.append(price(rng))
    elif kind < 0.45:  # a field of a form
        parts = [cased(rng.choice(WORDS), rng) for _ in range(rng.randint(1, 2))]
        parts[-1] += ":"
        parts.append(rng.choice((price(rng), date(rng), cased(rng.choice(WORDS), rng))))
    elif kind < 0.55:  # numbers of a document
        parts = [cased(rng.choice(WORDS), rng), rng.choice(("No.", "#", "Nr.", "ID", "Tel."))]
        number = "".join(rng.choice(DIGITS + "-") for _ in range(rng.randint(4, 12)))
        parts.append(number.strip("-"))
    else:
        capital = rng.random() < 0.1
        while sum(map(len, parts)) + len(parts) < rng.randint(10, longest):
            word = rng.choice(WORDS)
            word = accented(word, rng) if rng.random() < 0.1 else word
            word = word.upper() if capital else word
            parts.append(word + rng.choice(("", "", "", "", "", ",", ".", ";")))
        parts[0] = parts[0].capitalize() if not capital else parts[0]
    return " ".join(parts)[:longest].strip() or "A"


def line(rng: random.Random, longest: int, plain: bool) -> str:
    """A random line. Plain fonts, in which l and I look alike, get no random strings with them."""
    if longest > 12 and rng.random() < 0.75:
        return long_line(rng, longest)
    kind = rng.random()
    word = rng.choice(WORDS)
    if kind < 0.2:
        word = accented(word, rng) if rng.random() < 0.15 else word
        text = cased(word, rng) + rng.choice(("", "", "", ".", ",", ":", "!", "?"))
    elif kind < 0.38:
        pair = (word, rng.choice(WORDS))
        text = rng.choice(("{} {}", "{} {}", "{}-{}", "{} & {}", "{}, {}", "{}/{}", '"{} {}"'))
        text = cased(text.format(*pair), rng)
    elif kind < 0.5:
        text = price(rng)
    elif kind < 0.56:
        text = date(rng)
    elif kind < 0.66:
        join = rng.choice((" ", " ", ": ", " #", "-", " (", "="))
        text = cased(word, rng) + join + rng.choice((price(rng), str(rng.randint(0, 9999))))
        text += ")" if join == " (" else ""
    else:
        common = qs.LETTERS + DIGITS
        pool = rng.choice((common, common, DIGITS, CHARACTERS, qs.LETTERS[:26], qs.LETTERS[26:]))
        pool = "".join(c for c in pool if not plain or c not in "Il|'")
        text = qs.random_string(rng, min(longest, 16), pool)
    return text[:longest].strip() or "A"


def degrade(image: Image.Image, size: tuple[int, int], rng: random.Random) -> Image.Image:
    """Resize to (width, height), with random blur, JPEG artefacts, light, contrast and noise."""
    if rng.random() < 0.15:
        image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 0.9)))
    if rng.random() < 0.25:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=rng.randint(40, 95))
        image = Image.open(file).convert("RGB")
    if image.size != size:
        image = image.resize(size, rng.choice(FILTERS))
    if rng.random() < 0.3:
        pixels = np.asarray(image, np.float32)
        if rng.random() < 0.5:
            pixels = (pixels - 128) * rng.uniform(0.75, 1.1) + 128 + rng.uniform(-12, 12)
        if rng.random() < 0.3:  # light from one side
            ends = rng.uniform(0.75, 1.0), rng.uniform(0.75, 1.0)
            pixels = pixels * np.linspace(*ends, size[0], dtype=np.float32)[None, :, None]
        generator = np.random.default_rng(rng.getrandbits(32))
        noise = generator.standard_normal(pixels.shape[:2], np.float32)
        pixels = pixels + noise[..., None] * rng.uniform(1, 8)
        image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
    return image


def turned(
    image: Image.Image, points: list[tuple[float, float]], degrees: float, paper: Colour
) -> tuple[Image.Image, list[tuple[float, float]]]:
    """The picture and points of it, turned anticlockwise around its centre."""
    a, b = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    x0, y0 = image.width / 2, image.height / 2
    image = image.rotate(degrees, Image.Resampling.BICUBIC, fillcolor=paper)
    return image, [
        (x0 + (x - x0) * a + (y - y0) * b, y0 - (x - x0) * b + (y - y0) * a) for x, y in points
    ]


def line_picture(
    height: int, width: int, rng: random.Random, ease: float, test: bool, unseen: bool = False
) -> Sample:
    """A picture of one printed line. ease is the probability of an easy picture."""
    easy = rng.random() < ease
    plain = rng.random() < 0.45
    face = faces.pick(rng, plain=plain, unseen=unseen)
    longest = 4 if easy else 12 if width < 320 or rng.random() < 0.3 else rng.choice((24, 40))
    text = line(rng, longest, plain)
    while qs.held_out(text) is not test:
        text = line(rng, longest, plain)
    sx, sy = stretch(rng, not easy)
    w, h = round(width * sx), round(height * sy)
    size = rng.uniform(24, 40) if easy else rng.uniform(14, 30) if rng.random() < 0.6 else 48.0
    size = rng.uniform(30, 48) if size == 48.0 else size
    while True:
        font = typeface(face, max(8, round(size * sy)))
        left, top, right, bottom = font.getbbox(text)
        if (right - left < w - 4 and bottom - top < h - 4) or size < 13:
            break
        size *= 0.88
    if right - left >= w - 2:
        return line_picture(height, width, rng, ease, test, unseen)
    # The last word may stand apart, as prices do.
    cut = text.rfind(" ") + 1
    apart = rng.uniform(0, w - 4 - (right - left)) if cut and rng.random() < 0.35 else 0.0
    x = round(rng.uniform(2, max(2, w - (right - left) - apart - 2)) - left)
    y = round(rng.uniform(2, max(2, h - (bottom - top) - 2)) - top)
    paper, pen = ink_colours(rng)
    image = Image.new("RGB", (w, h), paper)
    draw = ImageDraw.Draw(image)
    second = x + font.getlength(text[:cut]) + apart
    draw.text((x, y), text[:cut] if apart else text, font=font, fill=pen)
    if apart:
        draw.text((second, y), text[cut:], font=font, fill=pen)
    middle = y + (top + bottom) / 2
    centres = [
        (
            x
            + font.getlength(text[:index])
            + font.getlength(character) / 2
            + (apart if index >= cut else 0),
            middle,
        )
        for index, character in enumerate(text)
    ]
    if not easy and h > 1.6 * (bottom - top) and rng.random() < 0.3:
        room = math.degrees(math.atan2(h - (bottom - top) - 4, w)) / 2
        angle = rng.uniform(-1, 1) * min(1.5, room)
        image, centres = turned(image, centres, angle, paper)
    marks = [(cx / sx, cy / sy, mark) for (cx, cy), mark in zip(centres, text, strict=True)]
    image = degrade(image, (width, height), rng)
    turns = [qs.text_turn(text, rng)]
    task = "read" if turns[0][1] == text else "describe_text"
    turns.append(qs.text_turn(text, rng))
    return Sample(image, turns, task, max(8, round(size * sy)) / sy, marks)


def sample(
    size: tuple[int, int],
    rng: random.Random,
    ease: float = 0.0,
    locate: float = 0.0,
    test: bool = False,
    unseen: bool = False,
) -> Sample:
    """As `pictures.sample`; `unseen`: in a face that no training picture has."""
    height, width = size
    objects = 0.1 if width >= 2 * height else 0.55
    if height >= 64 and rng.random() < objects:
        return shape_picture(height, width, rng, ease, test, locate)
    return line_picture(height, width, rng, ease, test, unseen)
