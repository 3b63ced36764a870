"""Drawn screenshots of a desktop."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import PIL.Image

from qwink.lab.pictures.entry import Entry, Make
from qwink.lab.pictures.sketch import GREY, RULE, TEXT, Sheet

CODE = (
    "def crossing(distance_km, speed_kmh, wind_kmh=0):",
    '    """Hours that the ferry needs."""',
    "    if speed_kmh <= wind_kmh:",
    '        raise ValueError("too windy to leave")',
    "    return distance_km / (speed_kmh - wind_kmh)",
    "",
    "for wind in range(0, 30, 5):",
    "    hours = crossing(42, 35, wind)",
    '    print(f"{wind:2d} km/h: {hours:.2f} h")',
    "",
)


def editor(tab: str) -> PIL.Image.Image:
    """A code editor, dark, with a list of files."""
    sheet = Sheet(1920, 1080, "#1f2228")
    sheet.box(0, 0, 320, 1080, "#272b33")
    for index, name in enumerate((tab, "harbour.py", "tides.csv", "README.md")):
        sheet.text(40, 80 + 44 * index, name, 22, "#c8ccd4")
    sheet.box(320, 0, 620, 56, "#2f343d")
    sheet.text(350, 14, tab, 22, "#ffffff")
    for number in range(32):
        y = 80 + 30 * number
        sheet.text(390, y, str(number + 1), 20, "#5c6370", "ra")
        code = CODE[number % len(CODE)]
        indent = len(code) - len(code.lstrip())
        sheet.text(420 + 12 * indent, y, code.strip(), 20, "#98c379" if indent else "#e5c07b")
    sheet.box(0, 1048, 1920, 1080, "#3b6ea5")
    sheet.text(20, 1052, "Ln 12, Col 5 · UTF-8 · Python", 18, "#ffffff")
    return sheet.image


def terminal(lines: Sequence[str]) -> PIL.Image.Image:
    """A terminal's window."""
    sheet = Sheet(1280, 800, "#10131a")
    sheet.box(0, 0, 1280, 40, "#c9c9d0")
    for index, colour in enumerate(("#e0564b", "#e0b04b", "#5bb05b")):
        sheet.disc(28 + 30 * index, 20, 9, colour)
    for index, text in enumerate(lines):
        sheet.text(24, 64 + 30 * index, text, 22, "#d7e0d7")
    return sheet.image


def article(title: str) -> PIL.Image.Image:
    """A browser with a long text and a column beside it."""
    sheet = Sheet(1440, 900)
    sheet.box(0, 0, 1440, 90, "#e4e6eb")
    sheet.box(180, 24, 1260, 66, "#ffffff", RULE, 20)
    sheet.text(210, 34, "harbour.example/news/ferry", 20, GREY)
    sheet.text(120, 130, title, 46)
    y = sheet.paragraph(120, 220, 820, TEXT, 22) + 24
    sheet.paragraph(120, y, 820, TEXT, 22)
    sheet.box(1000, 220, 1340, 560, "#eef2f7", None, 12)
    sheet.paragraph(1024, 244, 290, "Most read: Lighthouse opens its tower. Tide tables.", 22)
    return sheet.image


def spreadsheet(rows: Sequence[Sequence[str]]) -> PIL.Image.Image:
    """Cells with letters and numbers along the edges."""
    sheet = Sheet(1600, 1000)
    sheet.box(0, 0, 1600, 110, "#217346")
    sheet.text(30, 34, "Timetable", 36, "white")
    for column in range(8):
        sheet.line([(80 + 190 * column, 110), (80 + 190 * column, 1000)])
        sheet.text(170 + 190 * column, 116, "ABCDEFGH"[column], 20, GREY, "ma")
    for row in range(22):
        y = 150 + 38 * row
        sheet.line([(0, y), (1600, y)])
        sheet.text(40, y + 7, str(row + 1), 20, GREY, "ma")
        for column, cell in enumerate(rows[row] if row < len(rows) else ()):
            sheet.text(92 + 190 * column, y + 7, cell, 20)
    return sheet.image


def mail(subjects: Sequence[tuple[str, str]]) -> PIL.Image.Image:
    """A mail program: senders and subjects."""
    sheet = Sheet(1366, 768, "#f5f6f8")
    sheet.box(0, 0, 240, 768, "#2c3e55")
    for index, folder in enumerate(("Inbox", "Sent", "Drafts", "Archive")):
        sheet.text(40, 60 + 50 * index, folder, 24, "#dfe7f0")
    for index, (sender, subject) in enumerate(subjects):
        y = 30 + 90 * index
        sheet.box(260, y, 1346, y + 76, "white", RULE, 8)
        sheet.text(290, y + 10, sender, 22)
        sheet.text(290, y + 40, subject, 20, GREY)
    return sheet.image


DEPARTURES = tuple((f"Ferry {n}", f"{7 + n}:15", f"Pier {1 + n % 4}", "on time") for n in range(14))
LISTING = "$ ls harbour", "boats  piers  tides.csv", "$ wc -l tides.csv", "8761 tides.csv", "$ _"
LETTERS = ("Mara Lind", "Berth 14 is free"), ("Harbour Office", "New tide tables")


def _entry(name: str, question: str, answer: str, make: Make) -> Entry:
    follow_up = "What kind of program is it?"
    return Entry(name, "screenshot", "ocr", question, follow_up, answer, make)


SCREENSHOTS = (
    _entry("editor", "Which file is open?", "ferry.py", partial(editor, "ferry.py")),
    _entry("terminal", "How many lines has tides.csv?", "8761", partial(terminal, LISTING)),
    _entry(
        "article",
        "What is the title of the article?",
        "New ferry from May",
        partial(article, "New ferry from May"),
    ),
    _entry("spreadsheet", "When does Ferry 3 leave?", "10:15", partial(spreadsheet, DEPARTURES)),
    _entry("mail", "Which berth is free?", "14", partial(mail, LETTERS * 4)),
)
