"""`qwink bench load`: a server with a rising number of users."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from qwink.cli.console import remark
from qwink.errors import OptionError
from qwink.extras import install_command

QUESTION = "Describe this picture in detail."


def load(
    url: Annotated[
        str,
        typer.Argument(
            help="Base URL of an OpenAI-compatible server, such as http://127.0.0.1:8000."
        ),
    ],
    image: Annotated[
        Path | None,
        typer.Argument(help="A picture to ask about; by default one that qwink draws."),
    ] = None,
    concurrency: Annotated[str, typer.Option(metavar="N,...", help="Users at once.")] = "1,2,4,8",
    rounds: Annotated[
        int, typer.Option(metavar="N", min=1, help="Questions of each user at each level.")
    ] = 4,
    question: Annotated[str, typer.Option("--question", "-q", help="What to ask.")] = QUESTION,
    max_tokens: Annotated[int, typer.Option(metavar="N", min=1, help="Longest answer.")] = 64,
    repeats: Annotated[
        float,
        typer.Option(metavar="SHARE", min=0, max=1, help="Requests that show a picture again."),
    ] = 0.0,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="By default the first that the server lists."),
    ] = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Its first line is the key; else $QWINK_API_KEYS."),
    ] = None,
    extra: Annotated[
        str | None,
        typer.Option(
            metavar="JSON", help="""Further fields of each request, such as '{"seed": 1}'."""
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="S", min=0.001, help="Longest silence of the server.")
    ] = 600.0,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="BASE", help="Draw BASE.png and BASE.svg; needs matplotlib."),
    ] = None,
    price_per_hour: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            help="Price of an hour of the server: adds what images cost, see bench cost.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the JSON document there.")
    ] = None,
) -> None:
    """Send requests of several concurrent users to a running server, and time the answers.

    Every request has a new picture, which no cache has, except for a share of --repeats. The
    table goes to stderr; the last line of stdout is one JSON document.

    \b
    Examples:
      qwink bench load http://127.0.0.1:8000
      qwink bench load http://127.0.0.1:8000 photo.jpg --concurrency 1,4,16 --plot load
      qwink bench load http://127.0.0.1:8000 --repeats 0.3 --out load.json
    """
    from PIL import Image

    from qwink.cli.bench.cost import priced
    from qwink.cli.bench.output import check_out, finish, numbers
    from qwink.cli.bench.tables import show_load
    from qwink.inputs.images import decode, open_image
    from qwink.lab.cost.price import Tariff
    from qwink.lab.load.measure import LoadPlan, measure_load
    from qwink.lab.pictures.sample import sample_picture

    if not url.startswith(("http://", "https://")):
        raise OptionError(f"{url!r} is not a URL; write it as http://127.0.0.1:8000")
    check_out(out)
    levels = numbers(concurrency, "--concurrency")
    fields = _fields(extra)
    if plot is not None:
        _need_matplotlib()
        check_out(plot.with_name(f"{plot.name}.svg"))
    tariff = None if price_per_hour is None else Tariff(price_per_hour, price_per_hour)
    # qwink's decoder turns it upright and checks its limits.
    picture = Image.fromarray(decode(open_image(image)).pixels) if image else sample_picture()
    plan = LoadPlan(
        url,
        picture,
        levels,
        rounds,
        question,
        max_tokens,
        repeats,
        model,
        _api_key(api_key_file),
        fields,
        timeout,
    )
    result = measure_load(plan, remark)
    show_load(result.measured)
    document = result.document()
    if plot is not None:
        from qwink.lab.plot import draw_load, save

        figure = draw_load(document)
        for ending in ("png", "svg"):
            save(figure, plot.with_name(f"{plot.name}.{ending}"))
    if tariff is not None:
        document["cost"] = priced(result, tariff)
    finish(document, out)


def _fields(extra: str | None) -> dict[str, Any]:
    """Raises OptionError for anything but an object."""
    try:
        fields = json.loads(extra or "{}")
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise OptionError(f"""--extra is {extra!r}; it must be an object such as '{{"seed": 1}}'""")
    return fields


def _api_key(file: Path | None) -> str | None:
    from qwink.settings import environment

    text = file.read_text("utf-8") if file else environment().get("QWINK_API_KEYS", "")
    keys = text.replace(",", "\n").split()
    if file and not keys:
        raise OptionError(f"{file}: holds no key")
    return keys[0] if keys else None


def _need_matplotlib() -> None:
    """Call before measuring. Raises OptionError without matplotlib."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise OptionError(
            f"plots need matplotlib; leave out --plot, or install it: {install_command('bench')}"
        )
