"""The command line. Answers go to stdout; hints, progress, warnings and errors to stderr.

Exit codes: 0 success, 1 an error that the message explains, 2 wrong usage,
3 some rows of a batch have an error, 4 the answer was cut off at its default length,
130 interrupted.
Commands import the runtime when they run, so that help appears without delay.
"""

from __future__ import annotations

import signal
import sys
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from qwink import __version__
from qwink.cli import bench
from qwink.cli.ask import ask
from qwink.cli.batch import batch
from qwink.cli.console import exit_codes, remark
from qwink.cli.export import export
from qwink.cli.models import models
from qwink.cli.pull import pull
from qwink.cli.serve import serve
from qwink.cli.verify import verify


class _Commands(TyperGroup):
    """A group that turns errors of its commands into one line on stderr and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        with exit_codes():
            return super().invoke(ctx)


app = typer.Typer(
    name="qwink",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: importing rich would double the time until it shows
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command()(ask)
app.command()(batch)
app.add_typer(bench.app)
app.command()(export)
app.command()(models)
app.command()(pull)
app.command()(serve)
app.command()(verify)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"qwink {__version__}")
        raise typer.Exit


@app.callback()
def _qwink(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Answer questions about images in a wink, on hardware you already own."""
    if context.invoked_subcommand != "serve":  # which says it with the rest of its first lines
        _warn_of_variables()


def _warn_of_variables() -> None:
    """Print a warning about QWINK_ variables that nothing reads, such as misspelt ones."""
    from qwink.settings import environment, unknown_variables

    if unknown_variables(environment(), ()):  # the server's options take longer to import
        from qwink.server.options import environment_warnings

        for warning in environment_warnings({"port": 0}, environment()):
            remark(f"warning: {warning}")


def main() -> None:
    """Run the command that `sys.argv` names."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:  # a server has its own handler
        # Turn SIGTERM into an exception, so that a running export deletes its partial files.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a closed stream is None
            stream.reconfigure(errors="replace")  # print ? for characters the terminal lacks
    # What Pillow notices in damaged files is in our own warnings where it changes the picture.
    warnings.filterwarnings("ignore", module="PIL")
    app(prog_name="qwink")
