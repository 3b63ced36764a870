"""`qwink serve`: an HTTP server with OpenAI's API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qwink.cli.console import RecipeName
from qwink.cli.options import (
    Device,
    Dtype,
    Engine,
    Quantize,
    Speculate,
    Store,
    StoreTtl,
    Threads,
)
from qwink.errors import OptionError
from qwink.extras import install_command
from qwink.signals import leave_at_once

if TYPE_CHECKING:
    from qwink.server.options import ServerOptions
    from qwink.settings import Settings

    Run = Callable[[ServerOptions, Settings, Callable[[str], None]], None]


def serve(
    host: Annotated[
        str | None,
        typer.Option(
            help="Address to listen on; by default 127.0.0.1, which only this machine reaches."
        ),
    ] = None,
    port: Annotated[
        int | None, typer.Option(metavar="N", help="Port; 0: any free port; by default 8000.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="REF", help="As for qwink ask; by default $QWINK_MODEL, else nano."),
    ] = None,
    engine: Engine = None,
    recipe: Annotated[
        RecipeName | None, typer.Option(help="Precision and quantization, see qwink models.")
    ] = None,
    device: Device = None,
    dtype: Dtype = None,
    quantize: Quantize = None,
    threads: Threads = None,
    context: Annotated[
        int | None,
        typer.Option(metavar="N", help="Limit of prompt plus answer, in tokens; by default 16384."),
    ] = None,
    speculate: Speculate = None,
    served_model_name: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Name of the model for clients; repeatable."),
    ] = None,
    warm: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="System prompt to prefill at start; repeatable."),
    ] = None,
    max_running: Annotated[
        int | None,
        typer.Option(metavar="N", help="Answers generated at the same time; by default 8."),
    ] = None,
    max_waiting: Annotated[
        int | None,
        typer.Option(metavar="N", help="Requests that may wait; more get status 429. [64]"),
    ] = None,
    request_timeout: Annotated[
        float | None, typer.Option(metavar="S", help="Longest time for an answer; by default 600.")
    ] = None,
    grace: Annotated[
        float | None,
        typer.Option(metavar="S", help="Time for running answers to end at shutdown. [30]"),
    ] = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="API keys, one per line; clients must send one of them. Keys can also be in "
            "$QWINK_API_KEYS, separated by commas.",
        ),
    ] = None,
    open_metrics: Annotated[
        bool | None,
        typer.Option(
            "--open-metrics/--no-open-metrics", help="Whether /metrics needs no key. [open]"
        ),
    ] = None,
    allow_url_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="Fetch pictures from this host: HOST at ports 80 and 443, HOST:PORT at that "
            "port; repeatable.",
        ),
    ] = None,
    allow_public_urls: Annotated[
        bool | None,
        typer.Option(
            "--allow-public-urls", help="Fetch pictures from any public host, at ports 80 and 443."
        ),
    ] = None,
    fetch_timeout: Annotated[
        float | None, typer.Option(metavar="S", help="Longest time for a fetch; by default 15.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="Allow web pages of this origin (CORS); repeatable."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Accept this host name, such as a proxy's, on a server without keys that listens "
            "on this machine only; repeatable.",
        ),
    ] = None,
    strict: Annotated[
        bool | None,
        typer.Option(
            "--strict/--no-strict",
            help="Refuse unknown fields of requests; by default they are ignored with a warning.",
        ),
    ] = None,
    max_images: Annotated[
        int | None, typer.Option(metavar="N", help="Most pictures in one request; by default 100.")
    ] = None,
    max_image_pixels: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Refuse pictures with more pixels, JPEG with four times as many. [64000000]",
        ),
    ] = None,
    max_body_mb: Annotated[
        int | None, typer.Option(metavar="N", help="Largest request, in MiB; by default 64.")
    ] = None,
    body_timeout: Annotated[
        float | None,
        typer.Option(metavar="S", help="Time to receive a body, plus 1 s per 32 kB. [15]"),
    ] = None,
    send_timeout: Annotated[
        float | None,
        typer.Option(metavar="S", help="Time for a client to receive what is sent. [60]"),
    ] = None,
    files_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Files and batches of clients; by default in QWINK_HOME."
        ),
    ] = None,
    files_mb: Annotated[
        int | None,
        typer.Option(metavar="N", help="Most MiB of files of one API key; by default 1024."),
    ] = None,
    memory_mb: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="MiB for keys and values, encoded images and uploads, without the model's "
            "weights; by default a quarter of the machine's memory, at most 4096.",
        ),
    ] = None,
    disk_cache: Annotated[
        bool | None,
        typer.Option("--disk-cache/--no-disk-cache", help="Keep encoded images on disk. [yes]"),
    ] = None,
    cache_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the disk cache; by default in $QWINK_HOME."),
    ] = None,
    disk_cache_mb: Annotated[
        int | None, typer.Option(metavar="N", help="Largest disk cache, in MiB. [4096]")
    ] = None,
    store: Store = None,
    store_ttl: StoreTtl = None,
    store_entry_mb: Annotated[
        int | None, typer.Option(metavar="N", help="Largest entry of the store, in MiB. [64]")
    ] = None,
    store_secret_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File with a text that encrypts and names the entries of the store; all servers "
            "need the same. It can also be in $QWINK_STORE_SECRET.",
        ),
    ] = None,
    otel: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Send traces to this OpenTelemetry collector, by OTLP over HTTP; by default "
            "$OTEL_EXPORTER_OTLP_ENDPOINT. Needs the extra otel.",
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Serve with replicas on a Ray cluster: its address, auto for the one on this "
            "machine, or local to start one.",
        ),
    ] = None,
    replicas: Annotated[
        str | None,
        typer.Option(
            metavar="N|MIN-MAX",
            help="With --ray, models that answer; MIN-MAX: as many as the queues ask. [1]",
        ),
    ] = None,
    ray_name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With --ray, name of the application; the one with this name is replaced without "
            "a pause. [qwink]",
        ),
    ] = None,
    ray_routing: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            help="With --ray, which replica gets a request: picture, the one that has its picture; "
            "load, the less loaded of two. [picture]",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="TOML file with any of these options, as --print-config"),
    ] = None,
    print_config: Annotated[
        bool,
        typer.Option("--print-config", help="Print the options in effect as TOML, without keys."),
    ] = False,
) -> None:
    """Serve the model over HTTP with OpenAI's API: POST /v1/chat/completions.

    Options can also be set by environment variables (QWINK_PORT for --port) and in a TOML file
    (port = 8000). Flags override the environment, and the environment overrides the file.

    \b
    Examples:
      qwink serve
      qwink serve --host 0.0.0.0 --api-key-file keys.txt
      qwink serve --config qwink.toml --print-config
    """
    # The parameters are the options of the server by name, but for these two.
    given = {name: value for name, value in locals().items() if value not in (None, [])}
    del given["print_config"]
    given.pop("config", None)
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
    leave_at_once()
    from qwink.server.options import environment_warnings, resolve
    from qwink.settings import Settings, environment

    options = resolve(given, environment(), config)
    for warning in environment_warnings(given, environment()):
        typer.echo(f"qwink: warning: {warning}", err=print_config)
    if print_config:
        typer.echo(options.as_toml(), nl=False)
        return
    try:
        run = _runner(options)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "qwink":
            raise
        extra = "serve" if options.ray is None else "serve,ray"
        raise OptionError(
            f"the server needs {error.name}; install it with: {install_command(extra)}"
        ) from None
    settings = Settings.from_environment()
    if options.otel is None and settings.otel_endpoint is not None:
        options = replace(options, otel=settings.otel_endpoint)
    run(options, settings, typer.echo)


def _runner(options: ServerOptions) -> Run:
    """What serves. Raises ModuleNotFoundError for what it needs."""
    if options.ray is not None:
        from qwink.cluster.run import serve_on_ray

        return serve_on_ray
    for name in ("replicas", "ray_name", "ray_routing"):
        if getattr(options, name) != getattr(type(options)(), name):
            raise OptionError(f"{name} is for servers on Ray; add --ray local, or leave it out")
    from qwink.server.run import serve as run

    return run
