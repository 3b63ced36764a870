"""Random texts for pictures, and questions with their answers."""

import random
import zlib
from pathlib import Path

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
DIGITS = "0123456789"
MARKS = ".,:;!?-'\"()/&%$#@+*="
CHARACTERS = LETTERS + DIGITS + MARKS
SHAPES = ("circle", "square", "triangle", "star", "diamond", "cross", "heart")
COLOURS: dict[str, tuple[tuple[int, int, int], ...]] = {
    "red": ((215, 25, 30), (190, 20, 25), (240, 45, 40)),
    "green": ((30, 150, 50), (20, 120, 40), (60, 190, 70)),
    "blue": ((30, 70, 210), (20, 40, 160), (60, 110, 240)),
    "yellow": ((245, 220, 30), (250, 235, 70), (235, 205, 20)),
    "orange": ((245, 140, 25), (255, 155, 50), (235, 120, 15)),
    "purple": ((125, 40, 160), (100, 30, 130), (150, 70, 190)),
    "black": ((15, 15, 15), (0, 0, 0), (35, 35, 35)),
    "white": ((255, 255, 255), (245, 245, 245), (250, 250, 245)),
    "grey": ((128, 128, 128), (110, 110, 112), (150, 150, 150)),
    "pink": ((250, 150, 190), (255, 175, 205), (240, 125, 175)),
}
READ = (
    "What does it say?",
    "Read the text.",
    "What is written here?",
    "Transcribe the text.",
    "Read all the text in the picture.",
    "What does the text say?",
    "What text is in the image?",
    "What is the text?",
    "Read this.",
)
DESCRIBE = ("Describe this picture.", "Describe the image.", "What is in the picture?")
COLOUR = ("What colour is it?", "What color is it?", "Which colour is the {0}?")
COLOUR_OF = ("What colour is the {0}?", "What color is the {0}?")
SHAPE = ("What shape is it?", "Which shape is this?", "What shape is in the picture?")
LOCATE = ("Locate the {0}.", "Where is the {0}?")
SYSTEMS = ("You are a helpful assistant.", "Answer briefly.", "Read carefully.")
WORDS = tuple(Path(__file__).with_name("words.txt").read_text().split())


def held_out(text: str) -> bool:
    """Whether this string is reserved for evaluation."""
    return zlib.crc32(text.encode()) % 16 == 0


def price(rng: random.Random) -> str:
    """A number, often with a currency or percent sign."""
    whole = rng.randint(0, 10 ** rng.randint(1, 4))
    body = f"{whole}.{rng.randint(0, 99):02d}"
    if whole > 999 and rng.random() < 0.5:
        body = f"{whole:,}.{rng.randint(0, 99):02d}"
    return rng.choice(("{}", "${}", "{}", "{} USD", "{}%", "-{}", "= {}")).format(body)


def date(rng: random.Random) -> str:
    """A date or a time."""
    y, m, d = rng.randint(1950, 2035), rng.randint(1, 12), rng.randint(1, 28)
    form = rng.choice(("{0}-{1:02}-{2:02}", "{2:02}/{1:02}/{0}", "{2}.{1}.{0}", "{3:02}:{4:02}"))
    return form.format(y, m, d, rng.randint(0, 23), rng.randint(0, 59))


def cased(word: str, rng: random.Random) -> str:
    """A word in lower, title or upper case."""
    return rng.choice((word, word, word.capitalize(), word.upper()))


def random_string(rng: random.Random, longest: int, characters: str) -> str:
    """Random characters, sometimes with a space between them."""
    text = "".join(rng.choice(characters) for _ in range(rng.randint(1, longest)))
    if len(text) > 4 and rng.random() < 0.25:
        cut = rng.randint(2, len(text) - 2)
        text = text[: cut - 1] + " " + text[cut:]
    return text


def line(rng: random.Random, longest: int, plain: bool) -> str:
    """A random line. Plain fonts, in which l and I look alike, get no random strings with them."""
    kind = rng.random()
    word = rng.choice(WORDS)
    if kind < 0.2:
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
        common = LETTERS + DIGITS
        pool = rng.choice((common, common, DIGITS, CHARACTERS, LETTERS[:26], LETTERS[26:]))
        pool = "".join(c for c in pool if not plain or c not in "Il'")
        text = random_string(rng, longest, pool)
    return text[:longest].strip() or "A"


def text_turn(text: str, rng: random.Random) -> tuple[str, str]:
    """A question about a printed line, and its answer."""
    if rng.random() < 0.12:
        return rng.choice(DESCRIBE), f'The text "{text}".'
    return rng.choice(READ), text


def object_turn(
    shape: str, colour: str, box: tuple[int, int, int, int], rng: random.Random, locate: float
) -> tuple[str, str, str]:
    """Task, question and answer about one object. box is in thousandths of the picture."""
    kind = rng.random()
    if kind < locate:
        answer = f'[{{"bbox_2d": {list(box)}, "label": "{shape}"}}]'
        return "locate", rng.choice(LOCATE).format(shape), answer
    kind = rng.random()
    if kind < 0.4:
        questions = COLOUR + COLOUR_OF
        return "colour", rng.choice(questions).format(shape), colour.capitalize() + "."
    if kind < 0.7:
        return "shape", rng.choice(SHAPE), f"A {shape}."
    article = "An" if colour == "orange" else "A"
    return "describe", rng.choice(DESCRIBE), f"{article} {colour} {shape}."


def asked() -> list[str]:
    """All questions and fixed parts of prompts; the tokenizer learns its merges from them."""
    patterns = (*READ, *DESCRIBE, *COLOUR, *COLOUR_OF, *SHAPE, *LOCATE)
    texts = [pattern.format(shape) for pattern in patterns for shape in SHAPES]
    return [*texts, *SYSTEMS * 20, *["system", "user", "assistant"] * 100]
