"""Short ways to say what a cluster looks like. For tests of checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heliograph.doctor.facts import (
    BrokerFacts,
    ClusterFacts,
    PartitionFacts,
    QuorumFacts,
    TopicFacts,
    Untold,
)
from heliograph.doctor.finding import Finding, Severity
from heliograph.model import ClusterAlias, TopicName

NOT_TOLD = Untold(why="not told")
NEW = {
    key: (0, version)
    for key, version in {
        0: 13,
        1: 18,
        2: 11,
        3: 13,
        16: 5,
        22: 6,
        23: 4,
        35: 4,
        55: 2,
        61: 0,
        69: 1,
        90: 1,
    }.items()
}
"""Versions of requests, as a broker of Kafka 4.3 has them."""


def broker(number: int, rack: str | None = None, **fields: Any) -> BrokerFacts:
    known: dict[str, Any] = {"versions": NEW, "settings": {}, **fields}
    return BrokerFacts(id=number, host=f"b{number}", port=9092, rack=rack, **known)


def topic(
    name: str, *partitions: tuple[int, ...], in_sync: tuple[int, ...] | None = None, **settings: str
) -> TopicFacts:
    """Partitions by their replicas, the leader first; `min_insync_replicas="2"` and the like."""
    return TopicFacts(
        name=TopicName(name),
        partitions={
            number: PartitionFacts(
                leader=next((r for r in replicas if in_sync is None or r in in_sync), None),
                replicas=replicas,
                in_sync=tuple(r for r in replicas if in_sync is None or r in in_sync),
            )
            for number, replicas in enumerate(partitions)
        },
        settings={key.replace("_", "."): value for key, value in settings.items()},
    )


def cluster(
    *parts: BrokerFacts | TopicFacts,
    alias: str = "A",
    voters: tuple[int, ...] | None = (0, 1, 2),
    **fields: Any,
) -> ClusterFacts:
    topics = {each.name: each for each in parts if isinstance(each, TopicFacts)}
    known: dict[str, Any] = {
        "features": {"metadata.version": 30},
        "sizes": {},
        "quotas": (),
        "partitions_total": sum(
            len(p.replicas) for t in topics.values() for p in t.partitions.values()
        ),
        **fields,
    }
    return ClusterFacts(
        alias=ClusterAlias(alias),
        cluster_id=alias,
        brokers={each.id: each for each in parts if isinstance(each, BrokerFacts)},
        topics=topics,
        quorum=NOT_TOLD if voters is None else QuorumFacts(leader=voters[0], voters=voters),
        **known,
    )


def by_severity(findings: list[Finding]) -> Mapping[Severity, list[str]]:
    """What was found, without what is well."""
    found: dict[Severity, list[str]] = {}
    for each in findings:
        if each.severity is not Severity.OK:
            found.setdefault(each.severity, []).append(each.what)
    return found


def severities(findings: list[Finding]) -> list[Severity]:
    return [each.severity for each in findings]
