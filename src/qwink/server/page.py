"""Serves the page at / and its files. Its security policy allows this server's files only."""

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
        "font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    # Browsers keep the files but revalidate them (304), so that an update replaces all at once.
    "Cache-Control": "no-cache",
}
# Set here because the operating system's table of types may lack or change them.
_KINDS = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}


class Page(StaticFiles):
    """Serves the folder `static` with HEADERS."""

    def file_response(self, full_path: Any, *arguments: Any, **options: Any) -> Response:
        response = super().file_response(full_path, *arguments, **options)
        response.headers.update(HEADERS)
        kind = _KINDS.get(Path(full_path).suffix)
        if kind and response.status_code == 200:
            binary = kind.startswith("font/") or kind == "image/png"
            response.headers["Content-Type"] = kind if binary else f"{kind}; charset=utf-8"
        return response
