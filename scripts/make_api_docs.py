"""Write docs/api.md from signatures and docstrings: `python scripts/make_api_docs.py`.

With --check nothing is written; the exit code is 1 when the page is out of date. A field of a
documented class without a docstring below it is an error.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import qwink
from qwink import errors, types
from qwink.batches.progress import Progress
from qwink.batches.rows import Row
from qwink.inputs import patches
from qwink.inputs.frames import VideoOptions
from qwink.runtime.options import AskKeywords, ImageKeywords
from qwink.runtime.preparation import ImageOptions

PAGE = Path(__file__).resolve().parent.parent / "docs" / "api.md"
INTRODUCTION = """\
# Python API

<!-- Made by scripts/make_api_docs.py: change the docstrings in src/qwink, then `make docs`. -->

`import qwink` gives every name on this page except those of `qwink.errors`, `qwink.types`,
`qwink.batches` and the two option types. A test runs the examples from top to bottom in one Python
process, in the root of the repository.
"""
OPTIONS = """\
## Options

`ask`, `stream`, `aask` and `astream` take all of these as keywords; `encode` takes those of
pictures. An unknown keyword raises `OptionError` with the nearest known name. The types are
`ImageKeywords` and `AskKeywords` in `qwink.runtime.options`.
"""
PICTURE_OPTIONS = """\
### Options of pictures and videos

Each task has areas and a default question ([choosing](choosing.md)); frames of videos are chosen as
[videos](videos.md) says.
"""
ANSWER_OPTIONS = """\
Defaults are those of the model (`vlm.sampling`); the table shows those of a model without its own.
Tasks ocr, document and locate take the likeliest token, and task document allows 2048 tokens,
unless options say otherwise.
"""
ERRORS = """\
## Errors

Import them from `qwink.errors`. An indented error is a subclass of the one above it. Each message
names the cause and the way out, in one line.

"""
METHODS = {
    "VLM": ("ask", "stream", "aask", "astream", "encode", "conversation", "close"),
    "Conversation": ("ask", "stream"),
}
ROWS = {"Row": Row, "Progress": Progress}
RESULTS = ("Result", "Box", "Point", "Event", "Timings", "Usage", "TokenLogprob")
PICTURES = ("EncodedImage", "Picture", "Video", "Message")
LIMITS = ("FetchPolicy", "Limits", "Memory")
NAMED = {
    "Task": types.Task,
    "Resample": patches.Resample,
    "FinishReason": types.FinishReason,
    "Stage": types.Stage,
    "Origin": types.Origin,
}


def field_docs(cls: type) -> dict[str, tuple[str, str]]:
    """Type and docstring of each field in the class's own body. A docstring is a string below."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, below in zip(body.body, [*body.body[1:], None], strict=True):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        name = field.target.id
        if name.startswith("_"):
            continue
        text = below.value if isinstance(below, ast.Expr) else None
        if not isinstance(text, ast.Constant) or not isinstance(text.value, str):
            sys.exit(f"{cls.__module__}: {cls.__name__}.{name} lacks a docstring below it")
        found[name] = ast.unparse(field.annotation), " ".join(text.value.split())
    return found


def properties(cls: type) -> dict[str, tuple[str, str]]:
    """Type and docstring of each public property that has a docstring."""
    return {
        name: (member.fget.__annotations__["return"], " ".join(doc(member).split()))
        for name, member in vars(cls).items()
        if isinstance(member, property) and not name.startswith("_") and member.__doc__
    }


def code(annotation: str) -> str:
    """A type for a table's cell, where "|" would end the cell."""
    return " or ".join(f"`{part}`" for part in annotation.replace("'", '"').split(" | "))


def shown(value: Any) -> str:
    """A default as it would be written."""
    if callable(value):
        return "..."
    return f'"{value}"' if isinstance(value, str) else repr(value)


def table(*columns: str) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"


def fields_table(cls: type) -> str:
    """One row for each field and property of a class, with the default where it has one."""
    defaults = {}
    for field in dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ():
        if field.default is not dataclasses.MISSING:
            defaults[field.name] = shown(field.default)
    rows = list(table("field", "type", "meaning"))
    for name, (annotation, text) in (field_docs(cls) | properties(cls)).items():
        default = f" Default: `{defaults[name]}`." if name in defaults else ""
        rows.append(f"| `{name}` | {code(annotation)} | {text}{default} |")
    return "\n".join(rows)


def options_table(keywords: type, *holders: type) -> str:
    """One row for each keyword option, with the default of the class that holds it."""
    known = {
        field.name: shown(field.default) for cls in holders for field in dataclasses.fields(cls)
    }
    rows = list(table("option", "type", "default", "meaning"))
    for name, (annotation, text) in field_docs(keywords).items():
        default = f"`{known[name]}`" if name in known else "–"
        rows.append(f"| `{name}` | {code(annotation)} | {default} | {text} |")
    return "\n".join(rows)


def signature(function: Callable[..., Any], name: str) -> str:
    """A call with its types as the source has them, one parameter a line."""
    found = inspect.signature(function)
    lines, kind = [], None
    for parameter in found.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and kind is not parameter.KEYWORD_ONLY:
            lines.append("*")
        kind = parameter.kind
        stars = "**" if kind is parameter.VAR_KEYWORD else ""
        default = "" if parameter.default is parameter.empty else f" = {shown(parameter.default)}"
        lines.append(f"{stars}{parameter.name}: {parameter.annotation}{default}")
    inner = "".join(f"    {line},\n" for line in lines)
    prefix = "await " if inspect.iscoroutinefunction(function) else ""
    call = f"{prefix}{name}(\n{inner})" if lines else f"{prefix}{name}()"
    return f"```python\n{call} -> {found.return_annotation}\n```"


def doc(item: Any) -> str:
    """The docstring as Markdown."""
    text = inspect.getdoc(item)
    assert text, f"{item} lacks a docstring"
    return text


def class_section(name: str, level: str = "###") -> str:
    cls = ROWS.get(name) or getattr(qwink, name, None) or getattr(types, name)
    return f"{level} {name}\n\n{doc(cls)}\n\n{fields_table(cls)}\n"


def methods(name: str) -> Iterator[str]:
    cls = getattr(qwink, name)
    yield f"## {name}\n\n{doc(cls)}\n"
    found = properties(cls)
    if found:
        rows = [f"| `{name}` | {code(kind)} | {text} |" for name, (kind, text) in found.items()]
        yield "\n".join([*table("property", "type", "meaning"), *rows]) + "\n"
    for method in METHODS[name]:
        function = getattr(cls, method)
        yield (
            f"### {name}.{method}\n\n{signature(function, f'{name}.{method}')}\n\n{doc(function)}\n"
        )


def errors_section() -> str:
    """The tree of errors; what each carries stands in its docstring."""

    def rows(cls: type, depth: int) -> Iterator[str]:
        text = " ".join(doc(cls).split())
        yield f"{'    ' * depth}- `{cls.__name__}`: {text}"
        subclasses: list[type] = cls.__subclasses__()
        for below in subclasses:
            if below.__module__ == errors.__name__:
                yield from rows(below, depth + 1)

    return ERRORS + "\n".join(rows(errors.QwinkError, 0)) + "\n"


def types_section() -> str:
    rows = [
        f"| `{name}` | {', '.join(f'`{shown(value)}`' for value in get_args(literal))} |"
        for name, literal in NAMED.items()
    ]
    lines = "\n".join([*table("name", "values"), *rows])
    return f"## Named values\n\n{lines}\n"


def render() -> str:
    """The whole page."""
    return "\n".join(
        [
            INTRODUCTION,
            f"## load\n\n{signature(qwink.load, 'qwink.load')}\n\n{doc(qwink.load)}\n",
            *methods("VLM"),
            *methods("Conversation"),
            f"## batch\n\n{signature(qwink.batch, 'qwink.batch')}\n\n{doc(qwink.batch)}\n\n"
            "See [many pictures](batch.md). Rows and progress are in `qwink.batches`.\n",
            *map(class_section, ROWS),
            OPTIONS,
            f"{PICTURE_OPTIONS}\n{options_table(ImageKeywords, ImageOptions, VideoOptions)}\n",
            f"### Options of answers\n\n{doc(types.SamplingParams)}\n\n{ANSWER_OPTIONS}\n"
            f"{options_table(AskKeywords, types.SamplingParams)}\n",
            "## Results\n",
            *map(class_section, RESULTS),
            "## Pictures and messages\n",
            *map(class_section, PICTURES),
            "## Limits\n",
            *map(class_section, LIMITS),
            types_section(),
            errors_section(),
        ]
    )


def main() -> int:
    """Write the page, or compare it."""
    page = render()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page, "utf-8")
    elif not PAGE.is_file() or PAGE.read_text("utf-8") != page:
        print(f"{PAGE} is out of date; run: make docs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
