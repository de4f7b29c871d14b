"""Reports of drills as tests need them."""

from __future__ import annotations

from typing import Any

from heliograph.audit.findings import FindingKind
from heliograph.drill.report import (
    DrillOptions,
    DrillReport,
    DrillStep,
    GroupDrill,
    LaneExposure,
)
from heliograph.drill.sample import SampleFinding
from heliograph.model import ClusterAlias, FlowId, OffsetRange, TopicName, TopicPartition

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
BEGAN_MS = 1_769_832_180_000


def partition(topic: str, number: int) -> TopicPartition:
    return TopicPartition(topic=TopicName(topic), partition=number)


def group(name: str = "billing", **changes: Any) -> GroupDrill:
    fields: dict[str, Any] = {
        "group": name,
        "partitions": 4,
        "repeated_records": 17,
        "sampled_partitions": 2,
        "equal_records": 1_234,
    }
    return GroupDrill(**(fields | changes))


def lane(topic: str = "orders", number: int = 0, **changes: Any) -> LaneExposure:
    fields: dict[str, Any] = {
        "source": partition(topic, number),
        "state": "copying",
        "detail": "",
        "lag_records": 321,
        "lag_s": 2.5,
    }
    return LaneExposure(**(fields | changes))


def missing(topic: str = "orders", offset: int = 4_711, records: int = 3) -> SampleFinding:
    return SampleFinding(
        kind=FindingKind.MISSING,
        source=partition(topic, 0),
        source_offsets=OffsetRange(start=offset, end=offset + records),
        target=partition(f"A.{topic}", 0),
        target_offsets=OffsetRange(start=offset + 10, end=offset + 10 + records),
        records=records,
    )


def report(**changes: Any) -> DrillReport:
    fields: dict[str, Any] = {
        "flow": FLOW,
        "began_ms": BEGAN_MS,
        "ended_ms": BEGAN_MS + 4_200,
        "host": "driver-1",
        "carried_by": "driver-1 pid 42",
        "options": DrillOptions(),
        "steps": (
            DrillStep(name="look at the source", seconds=9.0, told="2 lanes", in_rto=False),
            DrillStep(name="reach the target", seconds=0.25, told="7 groups are there"),
            DrillStep(name="commit the groups", seconds=0.5, told="1 shadow groups"),
        ),
        "lanes": (lane(), lane("orders", 1, lag_records=0, lag_s=0.0)),
        "groups": (group(),),
    }
    return DrillReport(**(fields | changes))
