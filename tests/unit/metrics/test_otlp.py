from __future__ import annotations

import math

from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from heliograph.metrics.families import Definition, Family, Histogram
from heliograph.metrics.native import native_families
from heliograph.metrics.otlp import otlp_json
from heliograph.model import LATENCY_BUCKETS_MS
from tests.unit.metrics.looks import at, looked


def parsed(families: list[Family]) -> dict[str, object]:
    body = otlp_json(families, began_ms=1_000, at_ms=2_000, resource={"service.name": "x"})
    request = Parse(body, ExportMetricsServiceRequest())
    (resource,) = request.resource_metrics
    assert resource.resource.attributes[0].value.string_value == "x"
    return {metric.name: metric for scope in resource.scope_metrics for metric in scope.metrics}


def test_what_is_pushed_is_what_the_protocols_schema_knows() -> None:
    found = parsed(native_families(looked(at(0, lag=5), at(1)), lanes=True, topics_max=9))

    records = found["heliograph_records_total"].sum  # type: ignore[attr-defined]
    assert records.is_monotonic and records.aggregation_temporality == 2
    (point,) = records.data_points
    assert (point.as_int, point.start_time_unix_nano, point.time_unix_nano) == (
        20,
        1_000_000_000,
        2_000_000_000,
    )
    assert {each.key: each.value.string_value for each in point.attributes} == {
        "source": "A",
        "target": "B",
        "topic": "orders",
    }
    latency = found["heliograph_latency_seconds"].histogram  # type: ignore[attr-defined]
    (histogram,) = latency.data_points
    assert (histogram.count, histogram.sum) == (8, 0.064)
    assert len(histogram.bucket_counts) == len(histogram.explicit_bounds) + 1
    assert found["heliograph_latency_seconds"].unit == "s"  # type: ignore[attr-defined]


def test_what_is_infinite_is_left_out() -> None:
    family = Family(Definition("a_seconds", "gauge", ("x",), "Something."))
    family.add(("1",), math.inf)
    family.add(("2",), 3.5)

    (point,) = parsed([family])["a_seconds"].gauge.data_points  # type: ignore[attr-defined]

    assert point.as_double == 3.5


def test_a_histogram_that_is_empty_is_still_one() -> None:
    family = Family(Definition("h", "histogram", (), "Something."))
    family.add((), Histogram((0,) * (len(LATENCY_BUCKETS_MS) + 1), 0.0))

    (point,) = parsed([family])["h"].histogram.data_points  # type: ignore[attr-defined]

    assert point.count == 0
