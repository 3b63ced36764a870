"""Traces: spans from a request's times, and what a collector receives from a real server."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from qwink.errors import OptionError
from qwink.server.options import ServerOptions
from qwink.server.traces import Times, Traces
from tests.server.otlp import attributes, collector
from tests.server.process import SMALL, Serve, image, user

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
ORIGINS = dict.fromkeys(("fetch", "decode", "resize", "prefill", "generate"), "computed")
TIMINGS = {
    "queue_ms": 5.0,
    "fetch_ms": 1.0,
    "decode_ms": 2.0,
    "resize_ms": 3.0,
    "encode_ms": 0.0,
    "prefill_ms": 20.0,
    "generate_ms": 40.0,
    "total_ms": 100.0,
    "first_token_ms": 50.0,
    "num_steps": 4,
    "origins": ORIGINS | {"encode": "reused"},
}
DETAILS: dict[str, Any] = {
    "model": "nano",
    "stream": False,
    "finish_reason": "stop",
    "prompt_tokens": 30,
    "cached_tokens": 8,
    "image_tokens": 16,
    "completion_tokens": 5,
    "timings": TIMINGS,
}


def told(
    status: int = 200, route: str = "/v1/chat/completions", flags: str = "01", **details: Any
) -> list[Any]:
    """The spans of one request; the child spans come first."""
    exporter = InMemorySpanExporter()
    traces = Traces(SimpleSpanProcessor(exporter))
    scope = {"headers": [(b"traceparent", f"00-{TRACE}-{PARENT}-{flags}".encode())]}
    entry = {"request_id": "req-1", "method": "POST", "route": route, "status": status}
    traces.add(scope, entry, details, Times(10.0, 10.01, 10.2, 1_000_000_000_000))
    spans = list(exporter.get_finished_spans())
    traces.close()
    return spans


def test_a_span_for_the_request_and_one_for_each_stage() -> None:
    *children, root = told(**DETAILS)
    assert root.name == "chat nano"
    assert f"{root.context.trace_id:032x}" == TRACE
    assert f"{root.parent.span_id:016x}" == PARENT
    assert root.end_time - root.start_time == 200_000_000
    assert root.attributes["gen_ai.usage.input_tokens"] == 30
    assert root.attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert root.attributes["qwink.reused"] == ("encode",)
    began = root.start_time + 10_000_000
    placed = {
        span.name: (round(start / 1e6, 3), round((span.end_time - span.start_time) / 1e6, 3))
        for span in children
        for start in [span.start_time - began]
    }
    assert placed == {
        "fetch": (0, 1),
        "decode": (1, 2),
        "resize": (3, 3),
        "wait": (6, 5),
        "prefill": (30, 20),
        "generate": (50, 40),
    }
    assert {span.parent.span_id for span in children} == {root.context.span_id}


def test_errors_have_their_code_and_no_stages() -> None:
    (refused,) = told(400, model="nano", code="image_too_large")
    assert refused.attributes["error.type"] == "image_too_large"
    assert refused.status.is_unset
    (failed,) = told(500, code="internal_error")
    assert not failed.status.is_ok
    assert not failed.status.is_unset


def test_what_is_not_traced() -> None:
    assert not told(route="/health")
    assert not told(route="/static")
    assert not told(flags="00", **DETAILS)  # the caller samples, and left this trace out


def test_a_url_is_checked() -> None:
    with pytest.raises(OptionError, match="must be a URL"):
        ServerOptions(otel="collector:4318")


def test_nothing_is_imported_when_it_is_off() -> None:
    code = (
        "import sys, qwink.server.app as app; app.create_app(lambda: None)\n"
        "assert not {'opentelemetry.sdk', 'qwink.server.traces'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_collector_receives_what_a_server_did(serve: Serve) -> None:
    with collector() as received:
        server = serve(OTEL_EXPORTER_OTLP_ENDPOINT=received.url).wait_ready()
        asked: dict[str, Any] = {
            "model": "tiny",
            "messages": [user(image(1), "What is a secret?")],
            "max_tokens": 6,
            **SMALL,
        }
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        url = f"{server.address}/v1/chat/completions"
        for _ in range(2):
            server.http.post(url, json=asked, headers=headers).raise_for_status()
        server.http.post(url, json={"model": "tiny"})
        assert server.stop() == 0
    assert set(received.paths) == {"/v1/traces"}
    assert received.services == {"qwink"}
    first, second, refused = (span for span in received.spans if span.kind == span.SPAN_KIND_SERVER)
    assert first.trace_id.hex() == second.trace_id.hex() == TRACE
    assert first.parent_span_id.hex() == PARENT
    assert refused.trace_id.hex() != TRACE
    children = {
        name: [span for span in received.spans if span.parent_span_id == parent.span_id]
        for name, parent in (("first", first), ("second", second), ("refused", refused))
    }
    names = {name: {span.name for span in spans} for name, spans in children.items()}
    assert names["first"] >= {"decode", "resize", "encode", "prefill", "generate"}
    assert "encode" not in names["second"]
    assert not names["refused"]
    for child in children["first"]:
        assert first.start_time_unix_nano <= child.start_time_unix_nano
        assert child.end_time_unix_nano <= first.end_time_unix_nano
    about = attributes(first)
    assert about["gen_ai.request.model"] == "tiny"
    assert about["gen_ai.usage.output_tokens"] == 6
    assert about["qwink.image_tokens"] == 16
    assert "encode" in attributes(second)["qwink.reused"]
    assert attributes(refused)["error.type"]
    assert not any(b"secret" in span.SerializeToString() for span in received.spans)
