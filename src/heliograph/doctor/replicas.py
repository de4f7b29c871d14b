"""Replication factors and min.insync.replicas against the brokers there are. No I/O; anywhere."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final

from heliograph.compat.own_topics import OwnTopic
from heliograph.doctor.facts import ClusterFacts, PartitionFacts, TopicFacts
from heliograph.doctor.finding import Finding, Severity, listed
from heliograph.model import TopicName, TopicPartition
from heliograph.words import counted

CHECK: Final = "replicas"
_Test = Callable[[TopicFacts, PartitionFacts], bool]


def replica_findings(
    cluster: ClusterFacts, names: Collection[TopicName], own: Collection[OwnTopic]
) -> list[Finding]:
    """Of the topics that flows read or write here, and of those a run would still make."""
    about = f"cluster {cluster.alias}"
    topics = [cluster.topics[name] for name in sorted(names) if name in cluster.topics]
    found = [*_now(about, topics), *_by_setting(about, cluster, topics), *_to_make(cluster, own)]
    if not any(each.severity in (Severity.PROBLEM, Severity.WARN) for each in found) and topics:
        factors = sorted({len(p.replicas) for t in topics for p in t.partitions.values()})
        what = f"{counted(len(topics), 'topic')} with {_factors(factors)}, all in sync"
        found.append(Finding(check=CHECK, about=about, severity=Severity.OK, what=what))
    return found


def _factors(factors: list[int]) -> str:
    if len(factors) == 1:
        return counted(factors[0], "replica")
    return f"{factors[0]} to {factors[-1]} replicas"


def _now(about: str, topics: list[TopicFacts]) -> Iterator[Finding]:
    """What is wrong at this moment."""
    offline = _those(topics, lambda _, p: p.leader is None)
    if offline:
        yield _finding(
            about,
            Severity.PROBLEM,
            f"{counted(len(offline), 'partition')} without a leader ({listed(offline)})",
            "they can be neither read nor written: their lanes stall",
            "bring the brokers back that hold their in-sync replicas",
        )
    short = _those(topics, _is_below_min)
    if short:
        yield _finding(
            about,
            Severity.PROBLEM,
            f"{counted(len(short), 'partition')} below min.insync.replicas ({listed(short)})",
            "they refuse records with acks=all, which a mirror and careful producers use",
            "bring the missing replicas back",
        )
    behind = _those(topics, lambda _, p: len(p.in_sync) < len(p.replicas))
    behind = [place for place in behind if place not in (*offline, *short)]
    if behind:
        yield _finding(
            about,
            Severity.WARN,
            f"{counted(len(behind), 'partition')} with replicas out of sync ({listed(behind)})",
            "one more loss may take them offline",
            "see why their followers lag (kafka-topics --describe --under-replicated-partitions)",
        )


def _by_setting(about: str, cluster: ClusterFacts, topics: list[TopicFacts]) -> Iterator[Finding]:
    """What will be wrong when a broker is lost."""
    impossible = _topics(topics, lambda t, p: _min(t) > len(p.replicas))
    if impossible:
        yield _finding(
            about,
            Severity.PROBLEM,
            f"{listed(impossible)}: min.insync.replicas is above the replication factor",
            "no record with acks=all is taken, ever",
            "lower min.insync.replicas, or add replicas (kafka-reassign-partitions)",
        )
    brittle = _topics(topics, lambda t, p: 1 < len(p.replicas) == _min(t))
    if brittle:
        yield _finding(
            about,
            Severity.WARN,
            f"{listed(brittle)}: min.insync.replicas equals the replication factor",
            "the loss or restart of any one broker stops writes",
            "one less than the replication factor is usual",
        )
    single = _topics(topics, lambda _, p: len(p.replicas) == 1)
    if single and len(cluster.brokers) > 1:
        yield _finding(
            about,
            Severity.WARN,
            f"{counted(len(single), 'topic')} with one replica ({listed(single)})",
            "the loss of a broker takes its partitions offline, the loss of its disk their records",
            "replication.factor = 3 for topics that are created; kafka-reassign-partitions for "
            "those that are there",
        )
    elif single:
        yield _finding(
            about,
            Severity.NOTE,
            "one broker, so one replica of everything",
            "nothing survives the loss of this machine",
            "three brokers or more, for what must last",
        )
    loose = _topics(topics, lambda t, p: len(p.replicas) > 1 and _min(t) == 1)
    if loose:
        yield _finding(
            about,
            Severity.NOTE,
            f"{counted(len(loose), 'topic')} with min.insync.replicas 1 ({listed(loose)})",
            "records that only the leader has are acknowledged, and lost with it",
            "min.insync.replicas = 2 with three replicas",
        )


def _to_make(cluster: ClusterFacts, own: Collection[OwnTopic]) -> Iterator[Finding]:
    for topic in own:
        if topic.name in cluster.topics or topic.replication_factor <= len(cluster.brokers):
            continue
        brokers = counted(len(cluster.brokers), "broker")
        yield _finding(
            f"cluster {cluster.alias}",
            Severity.PROBLEM,
            f"{topic.factor_key} is {topic.replication_factor}, and there are {brokers}",
            f"{topic.name} cannot be created",
            f"{topic.factor_key} = {len(cluster.brokers)}, or more brokers",
        )


def _min(topic: TopicFacts) -> int:
    """0 where it is not told: then nothing can be said against it."""
    return topic.number("min.insync.replicas") or 0


def _is_below_min(topic: TopicFacts, partition: PartitionFacts) -> bool:
    return partition.leader is not None and len(partition.in_sync) < min(
        _min(topic), len(partition.replicas)
    )


def _those(topics: list[TopicFacts], test: _Test) -> list[TopicPartition]:
    return [
        TopicPartition(topic=topic.name, partition=number)
        for topic in topics
        for number, partition in topic.partitions.items()
        if test(topic, partition)
    ]


def _topics(topics: list[TopicFacts], test: _Test) -> list[TopicName]:
    return [t.name for t in topics if any(test(t, p) for p in t.partitions.values())]


def _finding(about: str, severity: Severity, what: str, why: str, fix: str) -> Finding:
    return Finding(check=CHECK, about=about, severity=severity, what=what, why=why, fix=fix)
