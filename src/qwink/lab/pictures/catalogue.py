"""The list of all 50 pictures."""

from __future__ import annotations

from qwink.lab.pictures import charts, documents, interfaces, photographs, screens
from qwink.lab.pictures.entry import Entry

CATALOGUE: tuple[Entry, ...] = (
    *photographs.PHOTOGRAPHS,
    *documents.DOCUMENTS,
    *charts.CHARTS,
    *screens.SCREENSHOTS,
    *interfaces.INTERFACES,
    *photographs.LOW_LIGHT,
    *photographs.LARGE,
    *documents.LARGE,
    *documents.TALL,
    *interfaces.TALL,
    *photographs.WIDE,
    *interfaces.WIDE,
)
