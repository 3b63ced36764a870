"""Metrics for Prometheus. Each app has a separate registry."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, Info, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from qwink import __version__
from qwink.cache.redis import RedisStore
from qwink.cache.shared import SharedImages
from qwink.runtime.vlm import VLM
from qwink.types import STAGES, Result

if TYPE_CHECKING:
    from qwink.server.service import ModelService

_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120, 300)
_SPEEDS = (0.5, 1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256)


class Metrics:
    """Counters updated at the end of requests, and gauges read from the model at each scrape."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "qwink_requests", "Requests.", ("route", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "qwink_request_seconds",
            "Time from request to the last byte of the response.",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._stages = Histogram(
            "qwink_stage_seconds",
            "Time of each stage of an answer; reused stages are not counted.",
            ("stage",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._first_token = Histogram(
            "qwink_first_token_seconds",
            "Time from request to the first token of the answer.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._speed = Histogram(
            "qwink_tokens_per_second",
            "Speed of an answer after its first token.",
            buckets=_SPEEDS,
            registry=self.registry,
        )
        self._tokens = Counter(
            "qwink_answer_tokens", "Tokens of finished answers.", ("kind",), registry=self.registry
        )
        self._drafts = Counter(
            "qwink_draft_tokens",
            "Drafted tokens of finished answers that were computed: accepted saved a step each.",
            ("outcome",),
            registry=self.registry,
        )
        self._steps = Counter(
            "qwink_answer_steps",
            "Steps of finished answers, for their tokens after the first.",
            registry=self.registry,
        )

    def count_request(self, route: str, status: int, seconds: float) -> None:
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def count_answer(self, result: Result) -> None:
        """Count a finished answer."""
        timings, usage = result.timings, result.usage
        self._stages.labels("queue").observe(timings.queue_ms / 1e3)
        for stage in STAGES:
            if timings.origins.get(stage) == "computed":
                self._stages.labels(stage).observe(getattr(timings, f"{stage}_ms") / 1e3)
        self._first_token.observe(timings.first_token_ms / 1e3)
        after_first = usage.completion_tokens - 1
        if after_first > 0 and timings.generate_ms > 0:
            self._speed.observe(after_first / timings.generate_ms * 1e3)
        self._tokens.labels("prompt").inc(usage.prompt_tokens)
        self._tokens.labels("cached").inc(usage.cached_tokens)
        self._tokens.labels("completion").inc(usage.completion_tokens)
        self._drafts.labels("accepted").inc(usage.accepted_prediction_tokens)
        self._drafts.labels("rejected").inc(usage.rejected_prediction_tokens)
        self._steps.inc(timings.num_steps)

    def watch(self, vlm: VLM, service: ModelService) -> None:
        """Add the metrics of the engine and the caches, once the model is loaded."""
        about = vlm.engine.about
        labels = {name: about.get(name, "") for name in ("engine", "recipe", "kernels")}
        info = Info("qwink", "What computes.", registry=self.registry)
        info.info({"version": __version__} | labels)
        self.registry.register(_EngineCollector(vlm, service))

    def text(self) -> bytes:
        return generate_latest(self.registry)


class _EngineCollector(Collector):
    """Metrics of the scheduler and the caches, read at each scrape."""

    def __init__(self, vlm: VLM, service: ModelService) -> None:
        self._scheduler, self._service, self._budget = vlm.scheduler, service, vlm.memory
        self._drafting = vlm.drafting

    def collect(self) -> Iterable[Metric]:
        scheduler = self._scheduler
        yield _gauge("qwink_engine_up", "1 if the engine runs, else 0.", scheduler.alive)
        yield _gauge("qwink_running", "Answers being generated.", scheduler.num_running)
        yield _gauge("qwink_waiting", "Requests in the queue.", scheduler.num_waiting)
        yield _gauge(
            "qwink_active",
            "Chat requests being prepared, waiting or running.",
            self._service.num_answers,
        )
        generated = CounterMetricFamily("qwink_generated_tokens", "Tokens generated.")
        generated.add_metric([], scheduler.num_generated)
        yield generated
        yield from self._memory()
        yield from self._caches()
        if isinstance(scheduler.embeddings.shared, SharedImages):
            yield from _store(scheduler.embeddings.shared.store)

    def _memory(self) -> Iterable[Metric]:
        """The parts of the memory budget, and the use of each."""
        slots, memory = self._scheduler.slots, self._budget
        most = GaugeMetricFamily(
            "qwink_memory_budget_bytes", "Memory budget in bytes.", labels=["part"]
        )
        taken = GaugeMetricFamily("qwink_memory_bytes", "Memory in use, in bytes.", labels=["part"])
        for part, budget, used in (
            ("keys_and_values", memory.kv_bytes, slots.reserved_bytes + slots.num_bytes),
            ("images", memory.image_bytes, self._scheduler.embeddings.num_bytes),
            ("uploads", memory.upload_bytes, self._service.uploads.cache.num_bytes),
        ):
            most.add_metric([part], budget)
            taken.add_metric([part], used)
        return most, taken

    def _caches(self) -> Iterable[Metric]:
        embeddings, prefixes = self._scheduler.embeddings, self._scheduler.slots
        uploads = self._service.uploads
        hits = CounterMetricFamily(
            "qwink_cache_hits", "Lookups that found an entry.", labels=["cache"]
        )
        misses = CounterMetricFamily(
            "qwink_cache_misses", "Lookups that found no entry.", labels=["cache"]
        )
        evictions = CounterMetricFamily(
            "qwink_cache_evictions", "Entries removed to make room.", labels=["cache"]
        )
        num_bytes = GaugeMetricFamily("qwink_cache_bytes", "Bytes in memory.", labels=["cache"])
        for name, cache, size in (
            ("embeddings", embeddings, embeddings),
            ("prefixes", prefixes, prefixes),
            ("uploads", uploads, uploads.cache),
        ):
            hits.add_metric([name], cache.hits)
            misses.add_metric([name], cache.misses)
            evictions.add_metric([name], size.evictions)
            num_bytes.add_metric([name], size.num_bytes)
        hits.add_metric(["embeddings_on_disk"], embeddings.store_hits)
        num_bytes.add_metric(["earlier_answers"], self._drafting.earlier.num_bytes)
        return hits, misses, evictions, num_bytes


def _store(store: RedisStore) -> Iterable[Metric]:
    """How the shared store answers."""
    for side, counts in (("reads", store.reads), ("writes", store.writes)):
        calls = CounterMetricFamily(
            f"qwink_store_{side}", f"{side.capitalize()} of the shared store.", labels=["outcome"]
        )
        for outcome, number in sorted(counts.items()):
            calls.add_metric([outcome], number)
        yield calls
    passed = CounterMetricFamily(
        "qwink_store_bytes", "Bytes read from and written to the shared store.", labels=["side"]
    )
    skipped = GaugeMetricFamily(
        "qwink_store_skipped", "1 while the shared store is skipped, else 0.", labels=["side"]
    )
    for side, breaker in store.breakers.items():
        passed.add_metric([side], store.num_bytes[side])
        skipped.add_metric([side], float(breaker.state != "closed"))
    yield passed
    yield skipped
    yield _gauge("qwink_store_queued_bytes", "Bytes waiting to be written.", store.num_queued_bytes)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(name, text)
    gauge.add_metric([], float(value))
    return gauge
