"""The deployments of Ray Serve: the replicas, and the front that clients reach."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from math import ceil
from typing import Any

from ray import serve
from ray.exceptions import RayError
from ray.serve import Application
from ray.serve.config import AutoscalingConfig, RequestRouterConfig
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qwink.cluster.destination import Destination
from qwink.cluster.front import ReplicaLost, Traffic, create_front
from qwink.cluster.options import ReplicaCount
from qwink.cluster.replica import Call, Part, Replica, Start
from qwink.server.logs import set_up
from qwink.server.options import ServerOptions, from_document, resolve
from qwink.settings import environment

# The replicas limit their requests themselves, and refuse with 429.
_UNLIMITED = 100_000
_BROADCAST_S = 5.0
_ROUTER = "qwink.cluster.request_router.PictureRouter"
# The front has only these options. It goes on unchanged when others change.
_OF_THE_FRONT = (
    "host",
    "max_running",
    "api_keys",
    "open_metrics",
    "allow_origin",
    "allow_host",
    "max_body_mb",
    "body_timeout",
    "send_timeout",
    "files_dir",
    "files_mb",
)


def application(options: ServerOptions, owner: str = "", spare: bool = False) -> Application:
    """What `serve.run` runs. `owner` tells runs apart that deploy under the same name. `spare`:
    there is room for one replica more, so that an update ends an old one when a new one is ready.

    Raises OptionError for replicas that are no number or range.
    """
    count = ReplicaCount.parse(options.replicas)
    options = replace(options, api_key_file=None, threads=options.threads or 1)
    end = {
        # A replica that is replaced has as long as any answer may take.
        "graceful_shutdown_timeout_s": options.request_timeout + 5,
        "graceful_shutdown_wait_loop_s": 1.0,
        "health_check_period_s": 5.0,
        "max_constructor_retry_count": 2,
        "max_ongoing_requests": _UNLIMITED,
    }
    scale: dict[str, Any] = {"num_replicas": count.least}
    if count.most > count.least:
        scale = {
            "autoscaling_config": AutoscalingConfig(
                min_replicas=count.least,
                max_replicas=count.most,
                target_ongoing_requests=options.max_running,
            )
        }
    if options.ray_routing == "picture":
        scale["request_router_config"] = RequestRouterConfig(
            request_router_class=_ROUTER, request_router_kwargs={"slots": options.max_running}
        )
    replicas = serve.deployment(
        Replica,
        name="replicas",
        ray_actor_options={"num_cpus": options.threads},
        max_surge_percent=ceil(100 / count.most) if spare else 0,
        **end,
        **scale,
    ).bind(options)
    of_the_front = {name: getattr(options, name) for name in _OF_THE_FRONT}
    front = serve.deployment(
        Front,
        name="front",
        ray_actor_options={"num_cpus": 0},
        max_surge_percent=100,
        user_config={"owner": owner},
        **end,
    )
    return front.bind(replicas, ServerOptions(**of_the_front), count.most)


def app(arguments: Mapping[str, Any]) -> Application:
    """For Ray Serve's configuration files, as `import_path: qwink.cluster.deployment:app`.

    The arguments are options of `qwink serve` by name, as in its TOML file. Raises OptionError.
    """
    return application(resolve(from_document("args", arguments), environment()))


class RayReplicas:
    """The replicas behind a handle of Ray Serve."""

    def __init__(self, handle: DeploymentHandle[Any]) -> None:
        self._handle = handle

    async def answer(self, call: Call, destination: Destination) -> AsyncGenerator[Part, None]:
        streaming = self._handle.options(stream=True)
        response = streaming.answer.remote(call, destination=destination)
        ended = False
        try:
            async for part in response:
                yield part
            ended = True
        except (RayError, RayServeException) as error:
            ended = True
            raise ReplicaLost(str(error)) from error
        finally:
            if not ended:
                response.cancel()

    async def metrics(self) -> dict[str, bytes]:
        return dict(await self._broadcast("metrics"))

    async def upload(self, key: str, client: str) -> bytes | None:
        return next(
            (found for found in await self._broadcast("upload", key, client) if found), None
        )

    async def answer_everywhere(self, call: Call) -> list[tuple[Start, bytes]]:
        found = await self._broadcast("answer_whole", call)
        if not found:
            raise ReplicaLost("no replica responds")
        return found

    async def _broadcast(self, method: str, *arguments: Any) -> list[Any]:
        """The results of the replicas that respond."""
        try:
            results = await self._handle.broadcast(method, *arguments).results_async(
                timeout_s=_BROADCAST_S, return_exceptions=True
            )
        except (RayError, RayServeException, TimeoutError):
            return []
        return [result for result in results if not isinstance(result, BaseException)]


@serve.ingress()
class Front:
    """The deployment that Ray Serve's proxy calls."""

    def __init__(
        self, replicas: DeploymentHandle[Any], options: ServerOptions, num_replicas: int
    ) -> None:
        set_up()
        self._app = create_front(RayReplicas(replicas), options, num_replicas)
        self._traffic: Traffic = self._app.state.traffic
        self._owner = ""

    def __serve_build_asgi_app__(self) -> ASGIApp:
        return _without_request_id(self._app)

    def reconfigure(self, config: Mapping[str, str]) -> None:
        self._owner = config["owner"]

    async def owner(self) -> str:
        """Who deployed last."""
        return self._owner

    async def drain(self) -> int:
        """Refuse new requests. Returns how many are still answered."""
        self._traffic.drain()
        return self._traffic.num_active

    async def end(self) -> None:
        """End what is still answered."""
        self._traffic.end()
        await asyncio.sleep(0.1)  # for the last words of streams


def _without_request_id(app: ASGIApp) -> ASGIApp:
    """Ray Serve adds the header with the same id to each response."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_without(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [pair for pair in message["headers"] if pair[0] != b"x-request-id"]
                message = {**message, "headers": headers}
            await send(message)

        await app(scope, receive, send_without)

    return wrapped
