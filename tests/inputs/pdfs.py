"""Small PDFs, written by hand: text in Helvetica, which needs no font file."""

from __future__ import annotations

from collections.abc import Sequence


def write_pdf(
    texts: Sequence[str], size: tuple[float, float] = (200, 100), extra: str = ""
) -> bytes:
    """A document with a page for each text, of `size` in points; `extra` goes into each page."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>"]
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(texts)))
    objects.append(f"<< /Type /Pages /Kids [{kids}] /Count {len(texts)} >>")
    objects.append("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    for number, text in enumerate(texts):
        width, height = size
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {width} {height}] {extra} "
            f"/Resources << /Font << /F1 3 0 R >> >> /Contents {5 + 2 * number} 0 R >>"
        )
        stream = f"BT /F1 24 Tf 10 40 Td ({text}) Tj ET" if text else ""
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    out = b"%PDF-1.4\n"
    places = []
    for number, content in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{content}\nendobj\n".encode("latin-1")
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    count = len(objects) + 1
    return (
        out
        + (
            f"xref\n0 {count}\n0000000000 65535 f \n{table}"
            f"trailer\n<< /Size {count} /Root 1 0 R >>\nstartxref\n{len(out)}\n%%EOF\n"
        ).encode()
    )
