"""`qwink bench`: speed of this machine, gain of each optimisation, prices of images.

Tables go to stderr; stdout's last line is one JSON document.
"""

from __future__ import annotations

import typer

from qwink.cli.bench.cost import cost
from qwink.cli.bench.extract import extract
from qwink.cli.bench.ladder import ladder
from qwink.cli.bench.load import load
from qwink.cli.bench.plan import plan
from qwink.cli.bench.stages import stages

app = typer.Typer(
    name="bench",
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Measure speed, load and costs on this machine.",
)
app.command()(stages)
app.command()(ladder)
app.command()(load)
app.command()(extract)
app.command()(cost)
app.command()(plan)
