"""The metrics of several replicas on one page."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from qwink.cluster.metrics import merged
from qwink.server.metrics import Metrics


def test_each_sample_says_whose_it_is() -> None:
    pages = {}
    for number, name in enumerate(("b", "a"), 1):
        metrics = Metrics()
        for _ in range(number):
            metrics.count_request("/v1/models", 200, 0.5)
        pages[name] = metrics.text()
    page = merged(pages).decode()
    assert page.count("# TYPE qwink_requests_total counter") == 1
    found = {family.name: family for family in text_string_to_metric_families(page)}
    counts = {
        sample.labels["replica"]: sample.value
        for sample in found["qwink_requests"].samples
        if sample.name == "qwink_requests_total"
    }
    assert counts == {"a": 2.0, "b": 1.0}
    buckets = [s for s in found["qwink_request_seconds"].samples if s.labels.get("le") == "+Inf"]
    assert {sample.labels["route"] for sample in buckets} == {"/v1/models"}
    assert {family.name for family in found.values()} == {
        family.name for family in text_string_to_metric_families(pages["a"].decode())
    }


def test_no_replica_has_an_empty_page() -> None:
    assert merged({}) == b""
