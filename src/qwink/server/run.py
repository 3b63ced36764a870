"""Runs the server process: listens, loads the model in the background, drains at the end."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import fields, replace

import uvicorn

from qwink import signals
from qwink.cache.embeddings import Shared
from qwink.cache.shared import SharedImages
from qwink.errors import Cancelled, OptionError, QwinkError
from qwink.export.identity import Progress, Report
from qwink.native import capabilities
from qwink.runtime.engines import EngineOptions
from qwink.runtime.models import load
from qwink.runtime.vlm import VLM
from qwink.runtime.waiting import Limits
from qwink.server.app import create_app
from qwink.server.limits import HttpProtocol
from qwink.server.logs import set_up
from qwink.server.options import ServerOptions, memory_of, store_of
from qwink.server.service import ModelService
from qwink.settings import Settings

Say = Callable[[str], None]

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_FAILED_S = 1.0  # how long /health reports a dead engine before the process ends


def serve(options: ServerOptions, settings: Settings, say: Say = print) -> None:
    """Serve until SIGTERM or SIGINT; `say` prints a line of status for a person.

    Must be called in the main thread, because it handles signals. If the model is still loading a
    while after the signal, it ends the process without Python's shutdown, which would crash.
    Raises OptionError if the address is in use, and the error that stopped the model from loading
    or ended its engine.
    """
    signals.leave_at_once()
    set_up()
    wanted = store_of(options)
    shared = None if wanted is None else SharedImages.open(wanted)
    listener = _listen(options.host, options.port)
    address = address_of(options.host, listener.getsockname()[1])
    say(f"qwink: listening on {address} (API: {address}/v1, documentation: {address}/docs)")
    if options.engine != "torch":
        here = capabilities()
        advice = f"; {here.advice}" if here.advice else ""
        say(f"qwink: kernels on this processor: {here.kernels}{advice}")
    warn_if_open(options, say)
    if wanted is not None:
        say(f"qwink: shared store: {wanted.place}")
    try:
        still_loading = asyncio.run(_serve(listener, options, settings, say, shared))
    finally:
        if shared is not None:
            shared.close()
        signals.leave_at_once()
        atexit.register(signals.ignore)
    if still_loading:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(0)


def warn_if_open(options: ServerOptions, say: Say) -> None:
    """Say so if everyone can use the server."""
    if options.host not in _LOOPBACK and not options.api_keys:
        say("qwink: warning: no API keys: everyone who can connect can use it; see --api-key-file")


async def _serve(
    listener: socket.socket,
    options: ServerOptions,
    settings: Settings,
    say: Say,
    shared: SharedImages | None,
) -> bool:
    """Returns whether the model is still loading."""
    stopping = threading.Event()

    def report(_: Progress) -> None:  # in the thread that loads, and maybe exports, the model
        if stopping.is_set():
            raise Cancelled("the server is shutting down")

    if options.files_dir is None:
        options = replace(options, files_dir=settings.files)
    app = create_app(lambda: load_model(options, settings, report, shared), options, shared)
    service: ModelService = app.state.service
    server = _Server(
        uvicorn.Config(
            app,
            http=HttpProtocol,
            ws="none",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=2,
        )
    )
    stop, stop_now = asyncio.Event(), asyncio.Event()

    loop = asyncio.get_running_loop()

    def on_signal() -> None:  # the second signal ends the drain
        event = stop_now if stopping.is_set() else stop
        stopping.set()
        if not loop.is_closed():
            loop.call_soon_threadsafe(event.set)

    signals.call(on_signal)
    announcer = asyncio.create_task(_announce(service, say))
    closer = asyncio.create_task(_close(server, service, stop, stop_now, say))
    try:
        await server.serve([listener])
    finally:
        announcer.cancel()
        closer.cancel()
        await asyncio.gather(announcer, closer, return_exceptions=True)
        await service.close()  # uvicorn's older versions leave it out if it was never ready
    if service.error is None or stopping.is_set():
        say("qwink: stopped")
        return service.loading
    if isinstance(service.error, QwinkError):
        raise service.error
    raise QwinkError(f"the engine failed: {service.error}") from service.error


async def _announce(service: ModelService, say: Say) -> None:
    while not service.loaded:
        await asyncio.sleep(0.02)
    about = service.vlm.engine.about
    details = ", ".join(f"{name} {value}" for name, value in about.items())
    say(f"qwink: ready with {', '.join(service.model_names)} ({details})")
    kernels = capabilities().kernels
    # Recipe exact has no operators of ours.
    if about.get("kernels", kernels) != kernels and about.get("recipe") != "exact":
        say(
            "qwink: this artifact was exported for ONNX Runtime's operators; export its "
            f"checkpoint again to use kernels {kernels}, which are faster"
        )
    memory, context = service.vlm.memory, service.vlm.context
    say(
        f"qwink: memory budget without weights: {memory.total_bytes >> 20} MiB (--memory-mb), "
        f"{memory.kv_bytes >> 20} of them for keys and values; context: {context} tokens"
    )
    say(f"qwink: drafts (--speculate): {service.vlm.drafting.about}")


async def _close(
    server: _Server, service: ModelService, stop: asyncio.Event, stop_now: asyncio.Event, say: Say
) -> None:
    """Wait for a signal or the end of the engine, then stop the server."""
    signalled = asyncio.create_task(stop.wait())
    ended = asyncio.create_task(service.ended.wait())
    await asyncio.wait({signalled, ended}, return_when=asyncio.FIRST_COMPLETED)
    if stop.is_set():
        say(f"qwink: stopping; answers still running: {service.num_answers}")
        await service.drain(stop_now)
    elif service.loaded:
        await asyncio.sleep(_FAILED_S)
    signalled.cancel()
    ended.cancel()
    server.should_exit = True


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handlers, which would stop listening before the drain."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def load_model(
    options: ServerOptions,
    settings: Settings,
    report: Report = lambda _: None,
    shared: Shared | None = None,
) -> VLM:
    """The model that the options describe; `report` follows an export."""
    store = None
    if options.disk_cache:
        from qwink.cache.disk import DiskStore

        store = DiskStore(options.cache_dir or settings.images, options.disk_cache_mb << 20)
    engine = {field.name: getattr(options, field.name) for field in fields(EngineOptions)}
    return load(
        options.model,
        **engine,
        context=options.context,
        limits=Limits(max_running=options.max_running, max_waiting=options.max_waiting),
        memory=memory_of(options),
        store=store,
        shared=shared,
        speculate="off" if options.speculate == "off" else "auto",
        settings=replace(settings, store=None),  # the options have it
        report=report,
    )


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=256)
    except OSError as error:
        why = error.strerror or error
        raise OptionError(f"cannot listen on {host}:{port}: {why}; choose another --port") from None
    # asyncio sends small pieces at once (TCP_NODELAY) on sockets that name their protocol only.
    # Otherwise each response waits for the client's delayed acknowledgement, 40 ms on Linux.
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, listener.detach())


def address_of(host: str, port: int) -> str:
    """The URL of a server that listens there, for this machine."""
    name = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)
    if ":" in name and not name.startswith("["):
        name = f"[{name}]"
    return f"http://{name}:{port}"
