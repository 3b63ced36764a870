"""Builds the FastAPI app: routes, middleware and error handlers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from qwink import __version__
from qwink.cache.shared import SharedImages
from qwink.errors import QwinkError
from qwink.runtime.vlm import VLM
from qwink.server.auth import Guard
from qwink.server.budgets import TokenTimes, budget_routes
from qwink.server.chat import chat_routes
from qwink.server.docs import HEADERS, docs_page
from qwink.server.exchange import Answering
from qwink.server.failures import Failure, as_failure, no_such_path
from qwink.server.files import file_routes
from qwink.server.images import image_routes
from qwink.server.job_runner import JobRunner
from qwink.server.jobs import BatchRequest, job_routes
from qwink.server.limits import BodyLimit
from qwink.server.logs import AccessLog, failure_response
from qwink.server.metrics import Metrics
from qwink.server.options import ServerOptions
from qwink.server.page import STATIC, Page
from qwink.server.patience import Patience
from qwink.server.pictures import Pictures
from qwink.server.previews import preview_routes
from qwink.server.response_schema import ResponseRequest
from qwink.server.responses import response_routes
from qwink.server.schema import ChatRequest
from qwink.server.service import ModelService

if TYPE_CHECKING:
    from qwink.server.traces import Traces


def create_app(
    model: VLM | Callable[[], VLM],
    options: ServerOptions | None = None,
    shared: SharedImages | None = None,
) -> FastAPI:
    """An app that serves `model` and closes it at shutdown.

    If `model` is a function, a background thread calls it to load the model; /ready answers 503
    until the model is loaded. `shared` is the model's shared store, if it has one; uploads are
    kept there too. `app.state.service` is the ModelService behind the routes.
    """
    options = options or ServerOptions()
    service = ModelService(model if callable(model) else lambda: model, options, shared)
    traces = _traces(options)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        runner.start()
        yield
        await runner.close()
        await service.close()
        if traces is not None:
            await asyncio.to_thread(traces.close)

    app = FastAPI(
        title="qwink",
        version=__version__,
        description="Answers questions about images.",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's pages load scripts from a CDN; docs_page does not
        redoc_url=None,
    )
    app.state.service = service
    runner = JobRunner(app, service, options.files_dir)
    token_times = TokenTimes()
    answering = Answering(service, Pictures(options, service.uploads), token_times)
    app.include_router(chat_routes(answering))
    app.include_router(response_routes(answering))
    app.include_router(budget_routes(service, token_times))
    app.include_router(image_routes(service))
    app.include_router(preview_routes(service))
    app.include_router(file_routes(runner, options))
    app.include_router(job_routes(runner))
    _add_status_routes(app, service)
    _add_pages(app)
    add_errors(app, lambda: service.retry_after)
    _add_schemas(app)
    paths = frozenset(str(path) for path in app.openapi()["paths"])
    _answer_head(app)  # after the document has been made, which would list each route twice
    add_middleware(app, options, service.arriving, service.metrics, paths, traces=traces)
    return app


def _traces(options: ServerOptions) -> Traces | None:
    if options.otel is None:
        return None
    from qwink.server.traces import Traces

    return Traces.to(options.otel)


def add_middleware(
    app: FastAPI,
    options: ServerOptions,
    arriving: Patience,
    metrics: Metrics,
    paths: frozenset[str],
    num_servers: int = 1,
    traces: Traces | None = None,
) -> None:
    """What each request passes through before its route: log, CORS, keys, the body's limits.

    `paths` are logged for requests that were refused before routing. `num_servers`: how many
    servers are behind the app.
    """
    # Starlette runs the middleware added last first.
    app.add_middleware(BodyLimit, options=options, arriving=arriving, num_servers=num_servers)
    app.add_middleware(Guard, options=options)
    if options.allow_origin:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=options.allow_origin,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["X-Request-ID", "Retry-After"],
        )
    app.add_middleware(AccessLog, metrics=metrics, paths=paths, traces=traces)


def _add_status_routes(app: FastAPI, service: ModelService) -> None:
    @app.get("/v1/models", summary="List the models")
    async def models() -> dict[str, Any]:
        """The names that a request may give as `model`."""
        return {"object": "list", "data": [_model(name) for name in service.model_names]}

    @app.get("/v1/models/{name:path}", summary="Check that a model is served")
    async def model(name: str) -> dict[str, Any]:
        """The model, or 404."""
        names = service.model_names
        if name not in names:
            message = f"unknown model; this server has {', '.join(names)}"
            raise Failure(404, message, "model_not_found", "model")
        return _model(name)

    @app.get("/health", summary="Check that the server is alive")
    async def health() -> Response:
        """200, or 503 if the engine has stopped."""
        if not service.alive:
            raise Failure(503, "the engine has stopped", "engine_stopped")
        return JSONResponse({"status": "ok"})

    @app.get("/ready", summary="Check that the server can answer")
    async def ready(http: Request) -> Response:
        """200, or 503 while the model is loading and while the server is shutting down. With
        `?wait=30`, the response comes as soon as the model is loaded, after at most 30 seconds.
        """
        await service.until_loaded(_seconds(http.query_params.get("wait", "0")))
        return JSONResponse({"status": "ready", "model": service.vlm.name})

    @app.get("/metrics", summary="Read the metrics")
    async def metrics() -> Response:
        """Metrics in the text format of Prometheus."""
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return Response(service.metrics.text(), media_type=kind)


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "qwink"}


def _answer_head(app: FastAPI) -> None:
    """Let each route that answers GET answer HEAD too; uvicorn leaves the body out."""
    for route in app.routes:
        if isinstance(route, APIRoute) and route.methods and "GET" in route.methods:
            route.methods.add("HEAD")


def _seconds(wait: str) -> float:
    if not re.fullmatch(r"[0-9]{1,2}", wait) or int(wait) > 60:
        raise Failure(
            400, "wait must be a whole number of seconds, up to 60", "invalid_value", "wait"
        )
    return float(wait)


def _add_pages(app: FastAPI) -> None:
    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(docs_page(app.openapi()), headers=HEADERS)

    files = Page(directory=STATIC)

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def page(http: Request) -> Response:
        return await files.get_response("index.html", http.scope)

    app.mount("/static", files, name="static")


def add_errors(app: FastAPI, retry_after: Callable[[], int]) -> None:
    """Turn all errors into OpenAI's error object. `retry_after`: seconds until there is room."""

    async def known(http: Request, error: Exception) -> Response:
        return failure_response(as_failure(error, retry_after()), http.scope)

    async def routing(http: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        headers = dict(error.headers or {})
        if error.status_code == 404 or (error.status_code == 405 and http.url.path == "/"):
            failure = no_such_path(str(http.base_url).rstrip("/"))
        elif error.status_code == 405:
            message = f"this path does not take {http.method}; it takes {headers.get('Allow')}"
            failure = Failure(405, message, "method_not_allowed", headers=headers)
        else:
            code = error.detail.lower().replace(" ", "_")
            failure = Failure(error.status_code, error.detail, code, headers=headers)
        return failure_response(failure, http.scope)

    app.add_exception_handler(Failure, known)
    app.add_exception_handler(QwinkError, known)
    app.add_exception_handler(HTTPException, routing)


def _add_schemas(app: FastAPI) -> None:
    """Add the requests to the document; FastAPI omits them, since `Exchange` reads the bodies."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        reference = "#/components/schemas/{model}"
        kinds: list[Any] = [(ChatRequest, "validation"), (ResponseRequest, "validation")]
        kinds.append((BatchRequest, "validation"))
        _, schemas = models_json_schema(kinds, ref_template=reference)
        document.setdefault("components", {}).setdefault("schemas", {}).update(schemas["$defs"])
        return document

    app.openapi = openapi  # type: ignore[method-assign]
