"""Families as OTLP's JSON. Pure; runs anywhere.

OTLP over HTTP takes the JSON form of its protobuf messages, so nothing has to be installed for it.
64-bit integers are text there. Counters are cumulative since the driver began.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from heliograph import __version__
from heliograph.metrics.families import Family, Histogram, Value
from heliograph.model import LATENCY_BUCKETS_MS

_CUMULATIVE: Final = 2
_BOUNDS_S: Final = [ms / 1000 for ms in LATENCY_BUCKETS_MS]
_UNITS: Final = {"seconds": "s", "bytes": "By", "ratio": "1"}


def otlp_json(
    families: Iterable[Family], *, began_ms: int, at_ms: int, resource: Mapping[str, str]
) -> bytes:
    """An ExportMetricsServiceRequest. What is infinite is left out: JSON has no number for it."""
    times = {
        "startTimeUnixNano": str(began_ms * 1_000_000),
        "timeUnixNano": str(at_ms * 1_000_000),
    }
    request = {
        "resourceMetrics": [
            {
                "resource": {"attributes": _attributes(resource.items())},
                "scopeMetrics": [
                    {
                        "scope": {"name": "heliograph", "version": __version__},
                        "metrics": [_metric(family, times) for family in families],
                    }
                ],
            }
        ]
    }
    return json.dumps(request, separators=(",", ":"), allow_nan=False).encode()


def _metric(family: Family, times: Mapping[str, str]) -> dict[str, Any]:
    definition = family.definition
    points = [
        {
            "attributes": _attributes(zip(definition.labels, labels, strict=True)),
            **times,
            **_point(value),
        }
        for labels, value in family.rows
        if isinstance(value, Histogram) or math.isfinite(value)
    ]
    found: dict[str, Any] = {"name": definition.name, "description": definition.help}
    unit = _UNITS.get(definition.name.removesuffix("_total").rpartition("_")[2])
    if unit is not None:
        found["unit"] = unit
    if definition.kind == "gauge":
        return {**found, "gauge": {"dataPoints": points}}
    summed = {"aggregationTemporality": _CUMULATIVE, "dataPoints": points}
    if definition.kind == "histogram":
        return {**found, "histogram": summed}
    return {**found, "sum": {**summed, "isMonotonic": True}}


def _point(value: Value) -> dict[str, Any]:
    if isinstance(value, Histogram):
        return {
            "count": str(sum(value.counts)),
            "sum": value.total,
            "bucketCounts": [str(count) for count in value.counts],
            "explicitBounds": _BOUNDS_S,
        }
    return {"asInt": str(value)} if isinstance(value, int) else {"asDouble": value}


def _attributes(pairs: Iterable[tuple[str, str]]) -> Sequence[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in pairs]
