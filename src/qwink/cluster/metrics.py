"""The metrics of all replicas as one page, with a label that says whose they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector


def merged(pages: Mapping[str, bytes]) -> bytes:
    """One page in the text format of Prometheus, from the pages of replicas by their names."""
    families: dict[str, Metric] = {}
    for replica, page in sorted(pages.items()):
        for family in text_string_to_metric_families(page.decode()):
            found = families.setdefault(
                family.name, Metric(family.name, family.documentation, family.type)
            )
            found.samples.extend(
                sample._replace(labels={**sample.labels, "replica": replica})
                for sample in family.samples
            )
    registry = CollectorRegistry()
    registry.register(_Fixed(families.values()))
    return generate_latest(registry)


class _Fixed(Collector):
    def __init__(self, families: Iterable[Any]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families
