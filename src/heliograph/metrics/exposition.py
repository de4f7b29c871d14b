"""Families as Prometheus reads them: its text format and OpenMetrics. Pure; runs anywhere."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import Metric
from prometheus_client.exposition import generate_latest as as_text
from prometheus_client.openmetrics.exposition import generate_latest as as_openmetrics

from heliograph.metrics.families import Family, Histogram
from heliograph.model import LATENCY_BUCKETS_MS

TEXT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_GZIP_LEVEL: Final = 1
"""Names repeat, so more takes longer and saves little."""
_BOUNDS: Final = (*(repr(ms / 1000) for ms in LATENCY_BUCKETS_MS), "+Inf")


def wants_openmetrics(accept: str) -> bool:
    """Whether the Accept header of a scrape names it; Prometheus does when it can read it."""
    return "application/openmetrics-text" in accept


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether the Accept-Encoding header of a scrape names it; Prometheus always does."""
    for each in accept_encoding.lower().split(","):
        name, _, weight = each.partition(";")
        if name.strip() == "gzip":
            return weight.replace(" ", "").rstrip("0") not in ("q=", "q=0.")
    return False


def exposed(families: Iterable[Family], *, openmetrics: bool, gzipped: bool = False) -> bytes:
    body = (as_openmetrics if openmetrics else as_text)(_Collected(families))
    return gzip.compress(body, _GZIP_LEVEL, mtime=0) if gzipped else body


class _Collected:
    """What the client library asks of a registry."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            yield _metric(family)


def _metric(family: Family) -> Metric:
    definition = family.definition
    name = definition.name
    if definition.kind == "counter":
        name = name.removesuffix("_total")  # the formats put it back
    metric = Metric(name, definition.help, definition.kind)
    for values, value in family.rows:
        labels = dict(zip(definition.labels, values, strict=True))
        if isinstance(value, Histogram):
            _add_histogram(metric, labels, value)
        else:
            metric.add_sample(definition.name, labels, value)
    return metric


def _add_histogram(metric: Metric, labels: dict[str, str], value: Histogram) -> None:
    below = 0
    for bound, count in zip(_BOUNDS, value.counts, strict=True):
        below += count
        metric.add_sample(f"{metric.name}_bucket", {**labels, "le": bound}, below)
    metric.add_sample(f"{metric.name}_count", labels, below)
    metric.add_sample(f"{metric.name}_sum", labels, value.total)
