"""Rendered documents: letters, invoices, receipts, forms, tables, notices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import PIL.Image

from qwink.lab.pictures.entry import Entry
from qwink.lab.pictures.photographs import photograph
from qwink.lab.pictures.sketch import GREY, INK, RULE, TEXT, Sheet

A4 = 1240, 1754  # 150 dpi

Items = Sequence[tuple[str, int, float]]  # what, how many, price of one


def total(items: Items) -> str:
    """The sum at the bottom of an invoice or receipt."""
    return f"{sum(count * price for _, count, price in items):.2f}"


def letter(name: str, date: str, scale: float = 1) -> PIL.Image.Image:
    """A page of text, dated and signed."""
    sheet = Sheet(*A4, scale=scale)
    sheet.text(140, 130, "Harbour Office", 44)
    sheet.text(1100, 190, date, 26, anchor="ra")
    sheet.line([(140, 240), (1100, 240)], RULE, 2)
    sheet.text(140, 320, "Dear passenger,", 28)
    y = 390.0
    for _ in range(2):
        y = sheet.paragraph(140, y, 960, TEXT, 26) + 30
    sheet.text(140, y + 40, "With kind regards,", 28)
    sheet.text(140, y + 130, name, 34)
    sheet.text(140, 1640, "Pier 4 · open daily from six to ten", 20, GREY)
    return sheet.image


def invoice(number: str, items: Items, scale: float = 1) -> PIL.Image.Image:
    """A page with a table of items and their total."""
    sheet = Sheet(*A4, scale=scale)
    sheet.box(0, 0, 1240, 180, "#22446b")
    sheet.text(120, 66, "INVOICE", 52, "white")
    sheet.text(1120, 80, number, 30, "white", "ra")
    y = sheet.paragraph(120, 240, 520, "To: Nordlys Hotel, Quay Street 17, 9008 Seaside", 26) + 60
    columns = 120, 740, 920, 1120
    for x, head in zip(columns, ("Item", "Quantity", "Price", "Amount"), strict=True):
        sheet.text(x, y, head, 24, GREY, "la" if x == 120 else "ra")
    sheet.line([(120, y + 44), (1120, y + 44)], INK, 2)
    for what, count, price in items:
        y += 66
        cells = what, str(count), f"{price:.2f}", f"{count * price:.2f}"
        for x, cell in zip(columns, cells, strict=True):
            sheet.text(x, y, cell, 26, INK, "la" if x == 120 else "ra")
        sheet.line([(120, y + 48), (1120, y + 48)])
    sheet.text(740, y + 110, "Total", 34, anchor="ra")
    sheet.text(1120, y + 110, total(items), 34, anchor="ra")
    sheet.paragraph(120, 1580, 1000, "Payable within 30 days. Thank you for your order.", 22, GREY)
    return sheet.image


def receipt(shop: str, items: Items, height: int = 900) -> PIL.Image.Image:
    """A till's paper strip."""
    sheet = Sheet(500, height, "#f4f2ec")
    sheet.text(250, 40, shop, 34, anchor="ma")
    sheet.text(250, 92, "Thank you for your visit", 18, GREY, "ma")
    y = 130.0
    for what, count, price in items:
        y += 36
        sheet.text(40, y, f"{count} x {what}", 22)
        sheet.text(460, y, f"{count * price:.2f}", 22, anchor="ra")
    sheet.line([(40, y + 50), (460, y + 50)], INK, 2)
    sheet.text(40, y + 70, "TOTAL", 30)
    sheet.text(460, y + 70, total(items), 30, anchor="ra")
    return sheet.image


def form(fields: Sequence[tuple[str, str]]) -> PIL.Image.Image:
    """A form filled in."""
    sheet = Sheet(*A4)
    sheet.text(120, 110, "Registration", 48)
    sheet.paragraph(120, 190, 1000, "Please write clearly and leave no field empty.", 24, GREY)
    for index, (label, value) in enumerate(fields):
        y = 300 + 150 * index
        sheet.text(120, y, label, 22, GREY)
        sheet.box(120, y + 36, 1120, y + 106, "#f7f7fa", RULE, 8)
        sheet.text(144, y + 52, value, 30, "#223a8a")
    return sheet.image


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> PIL.Image.Image:
    """A page that holds one table."""
    sheet = Sheet(1000, 260 + 60 * len(rows))
    sheet.text(80, 60, "Catch by region, in tons", 34)
    width = 840 / len(columns)
    for line, cells in enumerate((columns, *rows)):
        y = 140 + 60 * line
        if line % 2 == 0:
            sheet.box(80, y, 920, y + 60, "#e9eef5")
        for index, cell in enumerate(cells):
            sheet.text(96 + width * index, y + 16, cell, 24, INK if line else GREY)
    return sheet.image


def notice(text: str) -> PIL.Image.Image:
    """A sign with one line."""
    sheet = Sheet(800, 600, "#f2c14e")
    sheet.box(40, 40, 760, 560, None, INK, 24)
    sheet.text(400, 300, text, 84, INK, "mm")
    return sheet.image


def line(text: str) -> PIL.Image.Image:
    """One line of print, as small as the built-in model takes it."""
    sheet = Sheet(256, 64)
    sheet.text(128, 32, text, 28, INK, "mm")
    return sheet.image


SHOPPING = ("Coffee", 2, 3.4), ("Rye bread", 1, 4.25), ("Butter", 1, 2.95), ("Apples", 6, 0.6)
ROPES = ("Rope 20 m", 4, 31.5), ("Life jacket", 12, 48.0), ("Lantern", 3, 22.75)
SUPPLIES = tuple((f"Part no. {100 + 7 * n}", 1 + n % 5, 1.25 + 0.4 * n) for n in range(60))
PERSON = (
    ("Name", "Tomás Rivera"),
    ("Date of birth", "1987-11-23"),
    ("Street", "Mill Lane 8"),
    ("Town", "Portmere"),
    ("Telephone", "555 0142"),
)
CATCH = (
    ("North", "412", "655", "530"),
    ("East", "180", "240", "205"),
    ("South", "96", "131", "88"),
    ("West", "377", "590", "461"),
)

_page = partial(Entry, kind="document", task="document")
_strip = partial(Entry, kind="document", task="ocr")
TOTAL, SHOP = "What is the total?", "What is the name of the shop?"
SIGNED, DATED = "Who signed the letter?", "What is the date of the letter?"

DOCUMENTS = (
    _page(
        "invoice",
        question=TOTAL,
        follow_up="What is the number of the invoice?",
        answer=total(ROPES),
        make=partial(invoice, "No. 2041", ROPES),
    ),
    _strip(
        "line",
        question="What does it say?",
        follow_up="Which letter comes first?",
        answer="Gate B12",
        make=partial(line, "Gate B12"),
    ),
    _strip(
        "receipt",
        question=TOTAL,
        follow_up=SHOP,
        answer=total(SHOPPING),
        make=partial(receipt, "Corner Shop", SHOPPING),
    ),
    _page(
        "letter",
        question=SIGNED,
        follow_up=DATED,
        answer="Ingrid Solberg",
        make=partial(letter, "Ingrid Solberg", "3 March 2025"),
    ),
    _page(
        "form",
        question="What is the date of birth?",
        follow_up="What is the name of the town?",
        answer="1987-11-23",
        make=partial(form, PERSON),
    ),
    _page(
        "table",
        question="How many tons were caught in the north in spring?",
        follow_up="How many tons were caught in the west in summer?",
        answer="412",
        make=partial(table, ("Region", "Spring", "Summer", "Autumn"), CATCH),
    ),
    _strip(
        "notice",
        question="What does the sign say?",
        follow_up="What colour is the sign?",
        answer="MIND THE STEP",
        make=partial(notice, "MIND THE STEP"),
    ),
    _strip(
        "page",
        question="What is the heading?",
        follow_up="What are markers?",
        answer="Region-based segmentation",
        make=partial(photograph, "skimage/page.png"),
    ),
)
LARGE = (
    Entry(
        "large-35mp-scan",
        "large",
        "document",
        question=SIGNED,
        follow_up=DATED,
        answer="Oskar Lindqvist",
        make=partial(letter, "Oskar Lindqvist", "9 May 2024", 4),
        suffix=".jpg",
    ),
)
TALL = (
    Entry(
        "tall-receipt",
        "tall",
        "ocr",
        question=TOTAL,
        follow_up=SHOP,
        answer=total(SUPPLIES),
        make=partial(receipt, "Ship Chandler", SUPPLIES, 2600),
    ),
)
