"""Whether the standby could carry the primary's load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from heliograph.doctor.capacity import Load, capacity_findings
from heliograph.doctor.facts import ClusterFacts, Quota, Untold
from heliograph.doctor.finding import Severity
from heliograph.model import ClusterAlias, FlowId, TopicName, TopicPartition
from tests.unit.doctor.clusters import broker, by_severity, cluster, topic

GB = 10**9
FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
ORDERS, COPY = TopicName("orders"), TopicName("A.orders")


def sized(name: str, size: int) -> Mapping[TopicPartition, int]:
    return {TopicPartition(topic=TopicName(name), partition=0): size}


def source(size: int = GB, brokers: int = 1, **fields: Any) -> ClusterFacts:
    return cluster(
        *(broker(n) for n in range(brokers)),
        topic("orders", (0,), cleanup_policy="delete", retention_ms="1000"),
        sizes=sized("orders", size),
        **fields,
    )


def target(free: int | None = 100 * GB, total: int = 200 * GB, **fields: Any) -> ClusterFacts:
    return cluster(broker(0, usable_bytes=free, total_bytes=total), alias="B", **fields)


def load(rate: float | None = 1e6, factor: int = 1, **fields: Any) -> Load:
    return Load(
        flow=FLOW,
        mirrored={ORDERS: COPY},
        replication_factor=factor,
        bytes_per_s=rate,
        **fields,
    )


@pytest.mark.parametrize(
    ("seen", "there", "factor", "severity"),
    [
        (source(GB), target(), 1, None),
        (source(101 * GB), target(), 1, Severity.PROBLEM),
        (source(40 * GB), target(), 3, Severity.PROBLEM),
        (source(70 * GB), target(), 1, Severity.WARN),
        (source(GB), target(None), 1, Severity.UNKNOWN),
        (source(GB), target(sizes=Untold(why="refused")), 1, Severity.UNKNOWN),
    ],
)
def test_disks_must_take_what_is_still_to_be_copied(
    seen: ClusterFacts, there: ClusterFacts, factor: int, severity: Severity | None
) -> None:
    found = by_severity(capacity_findings(seen, there, load(factor=factor)))

    assert set(found) == ({severity} if severity else set())


def test_what_is_copied_already_needs_no_room() -> None:
    there = cluster(
        broker(0, usable_bytes=10 * GB, total_bytes=200 * GB),
        topic("A.orders", (0,)),
        alias="B",
        sizes=sized("A.orders", 95 * GB),
    )

    found = by_severity(capacity_findings(source(100 * GB), there, load()))

    assert found == {
        Severity.WARN: [
            "5.0 GB still to be copied, 10.0 GB free on B: its disks would be more than 80% full"
        ]
    }


def test_fewer_brokers_than_the_primary_are_warned_of() -> None:
    found = by_severity(capacity_findings(source(brokers=3), target(), load()))

    assert found[Severity.WARN] == ["B has 1 broker, A 3"]


def test_too_many_replicas_for_a_broker_are_warned_of() -> None:
    found = by_severity(capacity_findings(source(), target(partitions_total=4_500), load()))

    assert found[Severity.WARN] == ["about 4,501 replicas on each broker of B"]


@pytest.mark.parametrize(
    ("quota", "rate", "severity"),
    [
        (Quota(user="mirror", client_id=None, values={"producer_byte_rate": 5e5}), 1e6, "problem"),
        (Quota(user="mirror", client_id=None, values={"producer_byte_rate": 5e6}), 1e6, "note"),
        (Quota(user="", client_id=None, values={"producer_byte_rate": 5e5}), 1e6, "problem"),
        (Quota(user="other", client_id=None, values={"producer_byte_rate": 1.0}), 1e6, None),
        (
            Quota(user=None, client_id="heliograph", values={"producer_byte_rate": 1.0}),
            9.0,
            "problem",
        ),
        (Quota(user="mirror", client_id=None, values={"request_percentage": 1.0}), 1e6, None),
        (Quota(user="mirror", client_id=None, values={"producer_byte_rate": 1.0}), None, "note"),
    ],
)
def test_a_quota_that_counts_for_the_mirror_is_compared_with_the_load(
    quota: Quota, rate: float | None, severity: str | None
) -> None:
    wanted = load(rate, users={"mirror"}, client_ids={"heliograph"})

    found = by_severity(capacity_findings(source(), target(quotas=(quota,)), wanted))

    assert [each.value for each in found] == ([severity] if severity else [])


def test_a_consumers_quota_counts_on_the_source() -> None:
    quota = Quota(user="mirror", client_id=None, values={"consumer_byte_rate": 10.0})

    found = by_severity(
        capacity_findings(source(quotas=(quota,)), target(), load(users={"mirror"}))
    )

    assert "consumer_byte_rate of user mirror on the source is 10 B/s" in found[Severity.PROBLEM][0]


def test_what_suffices_says_what_was_not_seen() -> None:
    (fine,) = capacity_findings(source(), target(), load())

    assert (fine.severity, fine.what) == (
        Severity.OK,
        "1 broker of B for 1 broker of A, at 1 MB/s",
    )
    assert fine.why.startswith("CPU, memory and network of brokers are not told")
