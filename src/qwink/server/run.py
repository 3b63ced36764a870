"""Runs the server process: listens, loads the model in the background, drains at the end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import fields

import uvicorn

from qwink.errors import OptionError, QwinkError
from qwink.runtime.engines import EngineOptions
from qwink.runtime.models import load
from qwink.runtime.scheduler import Limits
from qwink.runtime.vlm import VLM
from qwink.server.app import create_app
from qwink.server.limits import HttpProtocol
from qwink.server.logs import set_up
from qwink.server.options import ServerOptions, memory_of
from qwink.server.service import ModelService
from qwink.settings import Settings

Say = Callable[[str], None]

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_FAILED_S = 1.0  # how long /health reports a dead engine before the process ends


def serve(options: ServerOptions, settings: Settings, say: Say = print) -> None:
    """Serve until SIGTERM or SIGINT; `say` prints a line of status for a person.

    Raises OptionError if the address is in use, and the error that stopped the model from loading
    or ended its engine.
    """
    set_up()
    listener = _listen(options.host, options.port)
    address = _address(options.host, listener.getsockname()[1])
    say(f"qwink: listening on {address} (API: {address}/v1, documentation: {address}/docs)")
    if options.host not in _LOOPBACK and not options.api_keys:
        say("qwink: warning: no API keys: everyone who can connect can use it; see --api-key-file")
    asyncio.run(_serve(listener, options, settings, say))


async def _serve(
    listener: socket.socket, options: ServerOptions, settings: Settings, say: Say
) -> None:
    app = create_app(lambda: load_model(options, settings), options)
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

    def on_signal() -> None:  # the second signal ends the drain
        (stop_now if stop.is_set() else stop).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    announcer = asyncio.create_task(_announce(service, say))
    closer = asyncio.create_task(_close(server, service, stop, stop_now, say))
    try:
        await server.serve([listener])
    finally:
        announcer.cancel()
        closer.cancel()
        await asyncio.gather(announcer, closer, return_exceptions=True)
    if service.error is None:
        say("qwink: stopped")
        return
    if isinstance(service.error, QwinkError):
        raise service.error
    raise QwinkError(f"the engine died: {service.error}") from service.error


async def _announce(service: ModelService, say: Say) -> None:
    while not service.loaded:
        await asyncio.sleep(0.02)
    say(f"qwink: ready with {', '.join(service.model_names)}")
    memory, context = service.vlm.memory, service.vlm.context
    say(
        f"qwink: memory budget without weights: {memory.total_bytes >> 20} MiB (--memory-mb), "
        f"{memory.kv_bytes >> 20} of them for keys and values; context: {context} tokens"
    )


async def _close(
    server: _Server, service: ModelService, stop: asyncio.Event, stop_now: asyncio.Event, say: Say
) -> None:
    """Wait for a signal or the end of the engine, then stop the server."""
    signalled = asyncio.create_task(stop.wait())
    ended = asyncio.create_task(service.ended.wait())
    await asyncio.wait({signalled, ended}, return_when=asyncio.FIRST_COMPLETED)
    if stop.is_set():
        say(f"qwink: stopping; answers still running: {service.num_active}")
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


def load_model(options: ServerOptions, settings: Settings) -> VLM:
    """The model that the options describe."""
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
        settings=settings,
    )


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=256)
    except OSError as error:
        why = error.strerror or error
        raise OptionError(f"cannot listen on {host}:{port}: {why}; choose another --port") from None


def _address(host: str, port: int) -> str:
    name = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)
    if ":" in name and not name.startswith("["):
        name = f"[{name}]"
    return f"http://{name}:{port}"
