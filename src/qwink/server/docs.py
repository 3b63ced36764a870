"""/docs: the OpenAPI document as one HTML page without scripts or external files."""

from __future__ import annotations

from html import escape
from typing import Any

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "code,pre{font-family:ui-monospace,monospace}table{border-collapse:collapse}"
    "td,th{text-align:left;vertical-align:top;padding:.2rem .8rem .2rem 0}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}a{color:#8bf}}"
)
HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}


def docs_page(openapi: dict[str, Any]) -> str:
    """HTML that lists all endpoints and the schemas of their requests."""
    info = openapi["info"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width'>",
        f"<title>{escape(info['title'])}</title><style>{_STYLE}</style>",
        f"<h1>{escape(info['title'])} <small>{escape(info['version'])}</small></h1>",
        "<p>The same as JSON: <a href=openapi.json>openapi.json</a></p>",
    ]
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            parts.append(f"<h2><code>{method.upper()} {escape(path)}</code></h2>")
            parts.append(f"<p><b>{escape(operation.get('summary', ''))}.</b> ")
            parts.append(f"{escape(operation.get('description', ''))}</p>")
    for name, schema in openapi.get("components", {}).get("schemas", {}).items():
        parts.append(_table(name, schema))
    return "".join(parts)


def _table(name: str, schema: dict[str, Any]) -> str:
    required = schema.get("required", [])
    rows = [
        f"<tr><td><code>{escape(field)}</code>{' *' if field in required else ''}</td>"
        f"<td><code>{escape(_kind(value))}</code></td>"
        f"<td>{escape(value.get('description', ''))}</td></tr>"
        for field, value in schema.get("properties", {}).items()
    ]
    head = f"<h2 id='{escape(name)}'>{escape(name)}</h2>"
    text = f"<p>{escape(schema.get('description', ''))}</p>"
    return f"{head}{text}<table>{''.join(rows)}</table>"


def _kind(value: dict[str, Any]) -> str:
    if "$ref" in value:
        return str(value["$ref"]).rsplit("/", 1)[-1]
    if "anyOf" in value:
        return " | ".join(kind for kind in map(_kind, value["anyOf"]) if kind != "null")
    if "enum" in value:
        return " | ".join(map(repr, value["enum"]))
    if "const" in value:
        return repr(value["const"])
    if value.get("type") == "array":
        return f"list of {_kind(value.get('items', {}))}"
    return str(value.get("type", "any"))
