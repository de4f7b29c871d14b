"""Replication factors and min.insync.replicas, against the brokers there are."""

from __future__ import annotations

import pytest

from heliograph.compat.own_topics import OwnTopic
from heliograph.doctor.facts import TopicFacts
from heliograph.doctor.finding import Finding, Severity
from heliograph.doctor.replicas import replica_findings
from heliograph.model import ClusterAlias, TopicName
from tests.unit.doctor.clusters import broker, by_severity, cluster, topic

THREE = tuple(broker(number) for number in range(3))


def found(*topics: TopicFacts, brokers: int = 3) -> list[Finding]:
    return replica_findings(cluster(*THREE[:brokers], *topics), {each.name for each in topics}, [])


@pytest.mark.parametrize(
    ("seen", "severity", "said"),
    [
        (
            topic("t", (0, 1, 2), in_sync=(), min_insync_replicas="2"),
            Severity.PROBLEM,
            "1 partition without a leader (t-0)",
        ),
        (
            topic("t", (0, 1, 2), in_sync=(0,), min_insync_replicas="2"),
            Severity.PROBLEM,
            "1 partition below min.insync.replicas (t-0)",
        ),
        (
            topic("t", (0, 1, 2), in_sync=(0, 1), min_insync_replicas="2"),
            Severity.WARN,
            "1 partition with replicas out of sync (t-0)",
        ),
        (
            topic("t", (0, 1), min_insync_replicas="3"),
            Severity.PROBLEM,
            "t: min.insync.replicas is above the replication factor",
        ),
        (
            topic("t", (0, 1), min_insync_replicas="2"),
            Severity.WARN,
            "t: min.insync.replicas equals the replication factor",
        ),
        (topic("t", (0,), min_insync_replicas="1"), Severity.WARN, "1 topic with one replica (t)"),
        (
            topic("t", (0, 1, 2), min_insync_replicas="1"),
            Severity.NOTE,
            "1 topic with min.insync.replicas 1 (t)",
        ),
    ],
)
def test_replicas_that_will_not_do_are_told(
    seen: TopicFacts, severity: Severity, said: str
) -> None:
    assert by_severity(found(seen)) == {severity: [said]}


def test_topics_that_will_do_are_one_line() -> None:
    (fine,) = found(topic("a", (0, 1, 2), min_insync_replicas="2"), topic("b", (1, 2), (2, 0)))

    assert (fine.severity, fine.what) == (
        Severity.OK,
        "2 topics with 2 to 3 replicas, all in sync",
    )


def test_a_single_broker_is_no_mistake() -> None:
    seen = by_severity(found(topic("t", (0,), min_insync_replicas="1"), brokers=1))

    assert seen == {Severity.NOTE: ["one broker, so one replica of everything"]}


@pytest.mark.parametrize(
    ("factor", "is_there", "problems"), [(3, False, 1), (3, True, 0), (1, False, 0)]
)
def test_a_topic_that_a_run_cannot_create_names_its_key(
    factor: int, is_there: bool, problems: int
) -> None:
    own = OwnTopic(
        what="checkpoints",
        cluster=ClusterAlias("A"),
        name=TopicName("c"),
        replication_factor=factor,
        factor_key="checkpoints.topic.replication.factor",
    )
    there = (topic("c", (0,), min_insync_replicas="1"),) if is_there else ()

    seen = by_severity(replica_findings(cluster(broker(0), *there), set(), [own]))

    told = seen.get(Severity.PROBLEM, [])
    assert len(told) == problems
    assert all("checkpoints.topic.replication.factor is 3" in text for text in told)
