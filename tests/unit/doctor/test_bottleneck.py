"""Which side is slow, from a running driver or from probes."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.doctor.bottleneck import Pace, bottleneck_finding, with_probes
from heliograph.doctor.finding import Severity
from heliograph.model import ClusterAlias, FlowId

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))


@pytest.mark.parametrize(
    ("figures", "severity", "said"),
    [
        ({"lag_records": 0}, Severity.OK, "keeps up"),
        ({"lag_records": 9, "held_share": 0.8}, Severity.NOTE, "the target is the bottleneck"),
        ({"lag_records": 9, "held_share": 0.01}, Severity.NOTE, "the source is the bottleneck"),
        (
            {"lag_records": 9, "held_share": 0.8, "busiest_slot": 0.97},
            Severity.NOTE,
            "a slot is the bottleneck at 5 MB/s: it uses 97% of a core",
        ),
        ({"lag_records": 9, "held_share": 0.2}, Severity.UNKNOWN, "neither side stands out"),
        ({"lag_records": 9}, Severity.UNKNOWN, "an unknown share"),
    ],
)
def test_a_running_driver_tells_by_what_its_slots_hold(
    figures: dict[str, Any], severity: Severity, said: str
) -> None:
    found = bottleneck_finding(Pace(flow=FLOW, bytes_per_s=5e6, **figures))

    assert found.severity is severity
    assert said in found.what


@pytest.mark.parametrize(
    ("source", "target", "severity", "said"),
    [
        (100e6, 10e6, Severity.NOTE, "the target would be the bottleneck"),
        (10e6, 100e6, Severity.NOTE, "the source would be the bottleneck"),
        (10e6, 12e6, Severity.OK, "both sides are about as fast"),
        (10e6, None, Severity.UNKNOWN, "nothing was written to the target; one reader"),
        (None, None, Severity.UNKNOWN, "no driver was asked (it has no REST server)"),
    ],
)
def test_probes_tell_where_no_driver_does(
    source: float | None, target: float | None, severity: Severity, said: str
) -> None:
    found = bottleneck_finding(with_probes(Pace(flow=FLOW), source, target))

    assert found.severity is severity
    assert said in found.what
