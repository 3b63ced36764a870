"""Draws the pages in examples/: a receipt, a form and a tall screenshot.

    python -m scripts.make_examples

They are in Pillow's own font, which nano was not trained on.
"""

from __future__ import annotations

from pathlib import Path

import PIL.Image
import PIL.ImageDraw

from qwink.lab.pictures.sketch import GREY, INK, RULE, TEXT, font

EXAMPLES = Path(__file__).parents[1] / "examples"
ITEMS = (("Coffee", "3.20"), ("Tea", "2.80"), ("2 Rolls", "4.60"), ("Soup", "7.90"))
FIELDS = (("Name", "Ann Miller"), ("Boat", "Nordlys"), ("Arrival", "12.06.2026"), ("Nights", "3"))


def receipt() -> PIL.Image.Image:
    """Items with prices and a total."""
    image = PIL.Image.new("RGB", (360, 420), "#f8f5ee")
    draw = PIL.ImageDraw.Draw(image)
    draw.text((180, 24), "Harbour Cafe", INK, font(30), "ma")
    draw.text((180, 66), "Pier 4", INK, font(22), "ma")
    draw.line([(24, 106), (336, 106)], INK, 2)
    y = 124
    for item, price in ITEMS:
        draw.text((28, y), item, INK, font(24))
        draw.text((332, y), price, INK, font(24), "ra")
        y += 42
    draw.line([(24, y + 6), (336, y + 6)], INK, 2)
    draw.text((28, y + 24), "Total", INK, font(30))
    draw.text((332, y + 24), "18.50", INK, font(30), "ra")
    draw.text((180, y + 80), "Thank you", INK, font(22), "ma")
    return image


def form() -> PIL.Image.Image:
    """Labels above boxes with values."""
    image = PIL.Image.new("RGB", (480, 520), "#fbfbf4")
    draw = PIL.ImageDraw.Draw(image)
    draw.text((32, 24), "Berth", INK, font(34))
    y = 90
    for label, value in FIELDS:
        draw.text((32, y), label, GREY, font(20))
        draw.rectangle([32, y + 30, 448, y + 78], None, "#9a9aa2", 2)
        draw.text((44, y + 40), value, INK, font(24))
        y += 104
    return image


def screenshot() -> PIL.Image.Image:
    """A list that is ten times as high as it is wide."""
    words = TEXT.replace(",", "").replace(".", "").replace(";", "").split()
    image = PIL.Image.new("RGB", (360, 3600), "white")
    draw = PIL.ImageDraw.Draw(image)
    for number in range(60):
        y = 60 * number
        draw.text((24, y + 16), f"{words[number]} {number + 1}", INK, font(26))
        draw.line([(16, y + 59), (344, y + 59)], RULE, 1)
    return image


def main() -> None:
    for name, draw in (("receipt", receipt), ("form", form), ("screenshot", screenshot)):
        draw().save(EXAMPLES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
