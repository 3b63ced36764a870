"""Drawn user interfaces of phones, maps, timelines and other pictures for screens."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import PIL.Image

from qwink.lab.pictures.entry import Entry, Make
from qwink.lab.pictures.sketch import GREY, INK, RULE, Sheet


def settings(options: Sequence[tuple[str, bool]]) -> PIL.Image.Image:
    """A phone's list of switches."""
    sheet = Sheet(1080, 2340, "#f2f2f7")
    sheet.text(60, 140, "Settings", 72)
    for index, (name, on) in enumerate(options):
        y = 300 + 150 * index
        sheet.box(40, y, 1040, y + 130, "white", None, 24)
        sheet.text(84, y + 38, name, 42)
        sheet.box(880, y + 32, 1000, y + 98, "#4caf50" if on else "#b9b9c0", None, 33)
        sheet.disc(966 if on else 914, y + 65, 28, "white")
    return sheet.image


def login(user: str) -> PIL.Image.Image:
    """A form to sign in."""
    sheet = Sheet(750, 1334)
    sheet.disc(375, 260, 90, "#3b6ea5")
    sheet.text(375, 400, "Welcome back", 52, INK, "ma")
    for y, label, value in ((540, "User", user), (700, "Password", "********")):
        sheet.text(80, y, label, 28, GREY)
        sheet.box(80, y + 42, 670, y + 122, "#f7f7fa", RULE, 12)
        sheet.text(106, y + 62, value, 34)
    sheet.box(80, 900, 670, 1000, "#3b6ea5", None, 16)
    sheet.text(375, 950, "Sign in", 38, "white", "mm")
    return sheet.image


def dialog(question: str, buttons: Sequence[str]) -> PIL.Image.Image:
    """A question in a window, with buttons."""
    sheet = Sheet(900, 500, "#5a6672")
    sheet.box(100, 90, 800, 410, "white", None, 16)
    sheet.paragraph(140, 130, 620, question, 30)
    for index, name in enumerate(buttons):
        right = 760 - 200 * index
        sheet.box(right - 180, 320, right, 380, "#3b6ea5" if index == 0 else "#dfe3e8", None, 10)
        sheet.text(right - 90, 350, name, 26, "white" if index == 0 else INK, "mm")
    return sheet.image


def player(title: str, artist: str) -> PIL.Image.Image:
    """A music player."""
    sheet = Sheet(1080, 1920, "#20232b")
    for ring in range(12):
        sheet.disc(540, 640, 400 - 32 * ring, ("#d1495b", "#edae49", "#00798c")[ring % 3])
    sheet.text(540, 1180, title, 64, "white", "ma")
    sheet.text(540, 1270, artist, 42, "#9aa0ad", "ma")
    sheet.line([(120, 1440), (960, 1440)], "#555b68", 8)
    sheet.line([(120, 1440), (430, 1440)], "#edae49", 8)
    sheet.disc(540, 1620, 90, "#edae49")
    return sheet.image


def weather(place: str, degrees: Sequence[int]) -> PIL.Image.Image:
    """A week's weather."""
    sheet = Sheet(750, 1334, "#6fa8dc")
    sheet.text(375, 90, place, 60, "white", "ma")
    sheet.text(375, 190, f"{degrees[0]}°", 150, "white", "ma")
    days = "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"
    for index, (day, value) in enumerate(zip(days, degrees, strict=False)):
        y = 480 + 110 * index
        sheet.text(80, y, day, 40, "white")
        sheet.disc(380, y + 24, 22, "#ffd966")
        sheet.text(670, y, f"{value}°", 40, "white", "ra")
    return sheet.image


def chat(turns: Sequence[str], height: int) -> PIL.Image.Image:
    """A long conversation on a phone."""
    sheet = Sheet(720, height, "#ece5dd")
    y, number = 40.0, 0
    while y < height - 200:
        left = 40 if number % 2 else 160
        bottom = sheet.paragraph(left + 24, y + 18, 470, turns[number % len(turns)], 26)
        sheet.box(left, y, left + 520, bottom + 10, None, "#9bbf8a", 18)
        y, number = bottom + 40, number + 1
    return sheet.image


def timeline(title: str, events: Sequence[str], width: int) -> PIL.Image.Image:
    """A wide banner of events in a row."""
    sheet = Sheet(width, 400, "#fbfaf6")
    sheet.text(60, 40, title, 48)
    sheet.line([(60, 220), (width - 60, 220)], INK, 4)
    for index, event in enumerate(events):
        x = 140 + (width - 280) * index / max(1, len(events) - 1)
        sheet.disc(x, 220, 14, "#3366aa")
        sheet.text(x, 260, event, 28, INK, "ma")
    return sheet.image


SWITCHES = ("Wi-Fi", True), ("Bluetooth", False), ("Dark mode", False), ("Location", True)
TURNS = "When do we meet?", "At 6:40, at pier four.", "See you!"
PORT = "1884 Port opened", "1931 Lighthouse built", "1960 First ferry", "2012 New pier"


def _entry(
    kind: str, name: str, question: str, answer: str, make: Make, follow_up: str = ""
) -> Entry:
    follow_up = follow_up or "What kind of program is it?"
    return Entry(name, kind, "ocr", question, follow_up, answer, make)


INTERFACES = (
    _entry(
        "interface", "login", "Which user signs in?", "captain.lee", partial(login, "captain.lee")
    ),
    _entry(
        "interface",
        "dialog",
        "Which button is blue?",
        "Save",
        partial(dialog, "Save the changes to tides.csv?", ("Save", "Discard")),
    ),
    _entry("interface", "settings", "Is Bluetooth on?", "No", partial(settings, SWITCHES * 3)),
    _entry(
        "interface",
        "player",
        "What is the title of the song?",
        "Low Tide",
        partial(player, "Low Tide", "The Buoys"),
    ),
    _entry(
        "interface",
        "weather",
        "How warm is it on Thursday?",
        "17",
        partial(weather, "Portmere", (14, 15, 13, 17, 18, 12, 11)),
    ),
)
TALL = (
    _entry(
        "tall",
        "tall-chat",
        "At what time do they meet?",
        "6:40",
        partial(chat, TURNS, 3600),
        "Where do they meet?",
    ),
)
WIDE = (
    _entry(
        "wide",
        "wide-timeline",
        "What happened in 1931?",
        "Lighthouse built",
        partial(timeline, "History of the port", PORT, 2600),
        "What is the title?",
    ),
    _entry(
        "wide",
        "wide-banner",
        "When does the market open?",
        "at nine",
        partial(timeline, "Fish market", ("opens at nine", "closes at two"), 1800),
        "When does the market close?",
    ),
)
