"""Traces for OpenTelemetry: a span for each request, with a child for each stage of its answer.

Spans are made when a request is over, from the times that its log line has. They hold no texts and
no pictures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.types import Scope

from qwink import __version__
from qwink.errors import OptionError
from qwink.extras import install_command
from qwink.types import STAGES

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor

UNTRACED = ("/health", "/ready", "/metrics", "/static", "unmatched")
_OPERATIONS = {"/v1/chat/completions": "chat", "/v1/responses": "chat"}
_FLUSH_MS = 2000
_NS = 1_000_000_000
_BEFORE = ("fetch", "decode", "resize")  # before the request waits for the engine


@dataclass(frozen=True, slots=True)
class Times:
    """When a request began and ended and its answer began, on the clock of `time.perf_counter`."""

    began: float
    answer_began: float
    ended: float
    ended_ns: int
    """The time of day at `ended`, in nanoseconds."""

    def ns(self, at: float) -> int:
        """The time of day, in nanoseconds."""
        return self.ended_ns - round((self.ended - at) * _NS)


class Traces:
    """Sends spans to a processor. Used by the event loop's thread; it waits for nothing."""

    def __init__(self, processor: SpanProcessor) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        # The names in OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME go before ours.
        about = Resource({"service.name": "qwink", "service.version": __version__})
        self._provider = TracerProvider(resource=about.merge(_named()), shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("qwink", __version__)
        self._propagator = TraceContextTextMapPropagator()

    @classmethod
    def to(cls, url: str) -> Traces:
        """Spans go to a collector by OTLP over HTTP: `url` is its root or ends with /v1/traces.

        Raises OptionError where OpenTelemetry is not installed.
        """
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ModuleNotFoundError as error:
            raise OptionError(
                f"--otel needs {error.name}; install it with: {install_command('otel')}"
            ) from None
        root = url.rstrip("/")
        endpoint = root if root.endswith("/v1/traces") else f"{root}/v1/traces"
        return cls(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, timeout=5)))

    def add(
        self, scope: Scope, entry: Mapping[str, Any], details: Mapping[str, Any], times: Times
    ) -> None:
        """The span of a request that is over; `entry` and `details` are its log line's."""
        from opentelemetry.trace import SpanKind, Status, StatusCode

        route, status = entry["route"], entry["status"]
        if route.startswith(UNTRACED) or route == "/":
            return
        operation, model = _OPERATIONS.get(route), details.get("model")
        name = f"{operation} {model}" if operation and model else f"{entry['method']} {route}"
        span = self._tracer.start_span(
            name,
            context=self._propagator.extract(_headers(scope)),
            kind=SpanKind.SERVER,
            attributes=dict(_attributes(operation, entry, details)),
            start_time=times.ns(times.began),
        )
        if status >= 500:
            span.set_status(Status(StatusCode.ERROR))
        timings = details.get("timings")
        if timings is not None and span.is_recording():
            self._add_stages(span, timings, times)
        span.end(times.ns(times.ended))

    def _add_stages(self, span: Any, timings: Mapping[str, Any], times: Times) -> None:
        from opentelemetry.trace import set_span_in_context

        parent = set_span_in_context(span)
        for stage, start_ms, length_ms in _laid_out(timings):
            start = times.ns(times.answer_began + start_ms / 1e3)
            child = self._tracer.start_span(stage, context=parent, start_time=start)
            child.end(start + round(length_ms * 1e6))

    def close(self) -> None:
        """Send what is left, for at most two seconds."""
        self._provider.force_flush(_FLUSH_MS)
        self._provider.shutdown()


def _laid_out(timings: Mapping[str, Any]) -> Iterator[tuple[str, float, float]]:
    """Each stage that was computed, its start after the answer's and its length, in milliseconds.

    The lengths are measured. A stage runs in pieces between those of other requests: its span is as
    long as the pieces together. Those before the first token end with it.
    """
    origins = timings["origins"]
    at = 0.0
    for stage in _BEFORE:
        if origins.get(stage) == "computed":
            yield stage, at, timings[f"{stage}_ms"]
            at += timings[f"{stage}_ms"]
    if timings["queue_ms"]:
        yield "wait", at, timings["queue_ms"]
    first = timings["first_token_ms"]
    prefill = timings["prefill_ms"] if origins.get("prefill") == "computed" else 0.0
    if origins.get("encode") == "computed":
        length = timings["encode_ms"]
        yield "encode", max(0.0, first - prefill - length), length
    if prefill:
        yield "prefill", max(0.0, first - prefill), prefill
    if origins.get("generate") == "computed":
        yield "generate", first, timings["generate_ms"]


def _attributes(
    operation: str | None, entry: Mapping[str, Any], details: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """By OpenTelemetry's conventions for HTTP and for generative AI; others begin with qwink."""
    yield "http.request.method", entry["method"]
    yield "http.route", entry["route"]
    yield "http.response.status_code", entry["status"]
    yield "qwink.request_id", entry["request_id"]
    if "code" in details:
        yield "error.type", details["code"]
    if operation is None:
        return
    yield "gen_ai.operation.name", operation
    yield "gen_ai.provider.name", "qwink"
    for name, key in (
        ("gen_ai.request.model", "model"),
        ("gen_ai.usage.input_tokens", "prompt_tokens"),
        ("gen_ai.usage.cache_read.input_tokens", "cached_tokens"),
        ("gen_ai.usage.output_tokens", "completion_tokens"),
        ("qwink.image_tokens", "image_tokens"),
        ("qwink.stream", "stream"),
    ):
        if key in details:
            yield name, details[key]
    if "finish_reason" in details:
        yield "gen_ai.response.finish_reasons", (details["finish_reason"],)
        yield "gen_ai.response.model", details["model"]
    if "timings" in details:
        timings = details["timings"]
        yield "qwink.first_token_ms", timings["first_token_ms"]
        yield "qwink.num_steps", timings["num_steps"]
        reused = tuple(s for s in STAGES if timings["origins"].get(s) == "reused")
        if reused:
            yield "qwink.reused", reused


def _headers(scope: Scope) -> dict[str, str]:
    """The headers that continue a trace."""
    return {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in scope["headers"]
        if name in (b"traceparent", b"tracestate")
    }


def _named() -> Any:
    """What the standard environment variables say about this service."""
    from opentelemetry.sdk.resources import OTELResourceDetector

    return OTELResourceDetector().detect()
