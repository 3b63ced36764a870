"""The page at / and its files. It may load what this server sends, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.responses import Response
from starlette.staticfiles import StaticFiles

STATIC = Path(__file__).parent / "static"
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    # Kept by browsers, but asked for again (304): after an update no old file meets a new one.
    "Cache-Control": "no-cache",
}
# Not left to the operating system's table, which may lack them or say otherwise.
_KINDS = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


class Page(StaticFiles):
    """The folder `static`."""

    def file_response(self, full_path: Any, *arguments: Any, **options: Any) -> Response:
        response = super().file_response(full_path, *arguments, **options)
        response.headers.update(HEADERS)
        kind = _KINDS.get(Path(full_path).suffix)
        if kind and response.status_code == 200:
            response.headers["Content-Type"] = f"{kind}; charset=utf-8"
        return response
