"""`qwink serve --ray`: deploys, says what happens, and drains at the end."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve.context import _get_global_client
from ray.serve.exceptions import RayServeException

from qwink import signals
from qwink.cluster.deployment import application
from qwink.cluster.options import ReplicaCount
from qwink.cluster.shares import share
from qwink.engine.threads import physical_cores
from qwink.errors import OptionError, QwinkError
from qwink.server.options import ServerOptions
from qwink.server.run import address_of, warn_if_open
from qwink.settings import Settings, without_usage_reports

Say = Callable[[str], None]

LOCAL = "local"
_STORE_BYTES = 256 << 20  # of shared memory, beside room for requests
_POLL_S = 0.1
_CALL_S = 10.0
_END_S = 30.0
_WATCH_S = 5.0
_MOST_FAILURES = 3


def serve_on_ray(options: ServerOptions, settings: Settings, say: Say = print) -> None:
    """Serve until SIGTERM or SIGINT; `say` prints a line of status for a person.

    Must be called in the main thread, because it handles signals. Raises OptionError if the address
    is in use or Ray is not where the option says, and QwinkError if the replicas do not start.
    """
    signals.leave_at_once()
    count = ReplicaCount.parse(options.replicas)
    options = _resolved(options, settings)
    local = options.ray == LOCAL
    if options.port == 0 or local:
        options = replace(options, port=_free_port(options.host, options.port))
    # Ray's processes are ended here, after the drain.
    with signals.withheld():
        _connect(options, local, count)
        signals.leave_at_once()  # Ray has put its own handlers there
    stop, stop_now = threading.Event(), threading.Event()
    try:
        options = _shared(options, local, count)
        owner = uuid.uuid4().hex
        address = _deploy(options, local, owner, say)
        signals.call(lambda: (stop_now if stop.is_set() else stop).set())
        if local:
            _watch(address, stop)
        else:
            stop.wait()
        # The Ray of this process ends with it, whoever has deployed there since.
        mine = None if local else owner
        _within(options.grace + _END_S, lambda: _leave(options, mine, stop_now, say))
    finally:
        signals.leave_at_once()
        _within(_END_S, lambda: _disconnect(local))
    say("qwink: stopped")


def _within(seconds: float, work: Callable[[], None]) -> None:
    """Do it, and end the process if it takes too long: calls to a Ray that is gone never return."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        print("qwink: warning: Ray does not respond; leaving", file=sys.stderr, flush=True)
        os._exit(1)


def _disconnect(local: bool) -> None:
    if local:
        serve.shutdown()
    ray.shutdown()


def _resolved(options: ServerOptions, settings: Settings) -> ServerOptions:
    """With the variables of this process that name the model; other machines may have others."""
    return replace(
        options,
        model=options.model or settings.model,
        recipe=options.recipe or settings.recipe,
        engine=options.engine or settings.engine,
        device=options.device or settings.device,
        dtype=options.dtype or settings.dtype,
        threads=options.threads or settings.threads,
        files_dir=options.files_dir or settings.files,
    )


def _connect(options: ServerOptions, local: bool, count: ReplicaCount) -> None:
    without_usage_reports()
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if local:
            # Cores are divided by threads; a replica that is replaced has as many for a while.
            cores = (count.most + 1) * (options.threads or physical_cores())
            store = _STORE_BYTES + 4 * options.max_body
            ray.init(
                "local",
                num_cpus=cores,
                object_store_memory=store,
                include_dashboard=False,
                **quiet,
            )
        else:
            ray.init(options.ray, **quiet)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        raise OptionError(
            f"cannot connect to Ray at {options.ray}: {error}; start it with ray start --head, set "
            f"RAY_AUTH_MODE=token if it asks for a token, or write --ray {LOCAL}"
        ) from None


def _shared(options: ServerOptions, local: bool, count: ReplicaCount) -> ServerOptions:
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    machines = [found for found in machines if found.get("CPU", 0) >= 1]
    if not machines:
        raise OptionError("this Ray cluster has no machine with a CPU; add one")
    cores = physical_cores() if local else int(min(found["CPU"] for found in machines))
    memory = int(min(found["memory"] for found in machines)) >> 20
    return share(options, count.most, len(machines), cores, memory)


def _deploy(options: ServerOptions, local: bool, owner: str, say: Say) -> str:
    """Returns the address when the replicas are ready."""
    for name in ("ray", "ray.serve"):
        logging.getLogger(name).setLevel(logging.ERROR)
    serve.start(
        proxy_location="HeadOnly" if local else "EveryNode",
        http_options={"host": options.host, "port": options.port, "keep_alive_timeout_s": 15},
    )
    # As they are if Ray Serve ran already.
    http = _get_global_client().http_config
    address = address_of(http.host, http.port)
    say(f"qwink: listening on {address} (API: {address}/v1, documentation: {address}/docs)")
    warn_if_open(options, say)
    if local:  # it lets in who has this user's token, in ~/.ray
        place = ray.get_runtime_context().gcs_address
        say(f"qwink: to replace what it serves: RAY_AUTH_MODE=token qwink serve --ray {place}")
    name = options.ray_name
    is_update = name in serve.status().applications
    spare = ray.available_resources().get("CPU", 0) >= (options.threads or 1)
    try:
        serve.run(application(options, owner, spare), name=name, route_prefix="/")
    except RuntimeError as error:
        reason = _reason(name, error)
        if is_update:
            raise QwinkError(
                f"the new replicas do not start, and old ones go on: {reason}"
            ) from None
        serve.delete(name)
        raise QwinkError(f"the replicas do not start: {reason}") from None
    memory = f"{options.threads} threads and {options.memory_mb} MiB without weights each"
    say(f"qwink: ready with {options.model} on {options.replicas} replicas ({memory})")
    return address


def _watch(address: str, stop: threading.Event) -> None:
    """Wait for the signal. Raises QwinkError if the Ray of this process has ended."""
    num_failures = 0
    while not stop.wait(_WATCH_S):
        try:
            httpx.get(f"{address}/health", timeout=_CALL_S, trust_env=False)
            num_failures = 0
        except httpx.HTTPError as error:
            num_failures += 1
            if num_failures == _MOST_FAILURES and not stop.is_set():
                raise QwinkError(f"Ray has ended or does not respond: {error}") from None


def _reason(name: str, error: Exception) -> str:
    """What Ray Serve knows of the failure: the last line is the replica's own error."""
    try:
        status = serve.status().applications[name]
        told = [one.message for one in status.deployments.values() if one.status != "HEALTHY"]
    except (KeyError, RayError, RayServeException):
        told = []
    lines = [line.strip() for line in "\n".join([str(error), *told]).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _leave(options: ServerOptions, owner: str | None, stop_now: threading.Event, say: Say) -> None:
    """Drain and delete the application, unless another run than `owner` has taken it over."""
    name = options.ray_name
    try:
        front = serve.get_app_handle(name)
        if owner and front.owner.remote().result(timeout_s=_CALL_S) != owner:
            say(f"qwink: another run has taken over {name}, which goes on")
            return
        left = front.drain.remote().result(timeout_s=_CALL_S)
        say(f"qwink: stopping; answers still running: {left}")
        deadline = time.monotonic() + options.grace
        while left and time.monotonic() < deadline and not stop_now.wait(_POLL_S):
            left = front.drain.remote().result(timeout_s=_CALL_S)
        front.end.remote().result(timeout_s=_CALL_S)
        serve.delete(name)
    except (RayError, RayServeException, TimeoutError) as error:
        print(f"qwink: warning: {name} was not stopped: {error}", file=sys.stderr)


def _free_port(host: str, port: int) -> int:
    """The port, or a free one for 0. Raises OptionError if it is in use."""
    try:
        family: Any = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.create_server((host, port), family=family) as found:
            number: int = found.getsockname()[1]
            return number
    except OSError as error:
        why = error.strerror or error
        raise OptionError(f"cannot listen on {host}:{port}: {why}; choose another --port") from None
