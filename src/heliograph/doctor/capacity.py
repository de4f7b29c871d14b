"""Whether the standby could carry the primary's load on the day. No I/O; runs anywhere."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from heliograph.doctor.facts import ClusterFacts, Quota, Untold
from heliograph.doctor.finding import Finding, Severity
from heliograph.model import FlowId, TopicName, TopicPartition
from heliograph.words import counted, rate_words

CHECK: Final = "capacity"
_REPLICAS_PER_BROKER_MAX: Final = 4_000
"""Kafka's own advice."""
_FULL: Final = 0.8
_DAY_S: Final = 86_400
_DAYS_SOON: Final = 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a flow brings to its target."""

    flow: FlowId
    mirrored: Mapping[TopicName, TopicName]
    """Topics of the source and their names on the target."""
    replication_factor: int
    """Of topics that are still to be created."""
    bytes_per_s: float | None
    """By which the mirrored topics grow on the source; None where it was not measured."""
    client_ids: Collection[str] = ()
    users: Collection[str] = ()


def capacity_findings(source: ClusterFacts, target: ClusterFacts, load: Load) -> list[Finding]:
    found = [
        *_brokers(source, target, load),
        *_disks(source, target, load),
        *_quotas(target, load, "producer_byte_rate", "the target"),
        *_quotas(source, load, "consumer_byte_rate", "the source"),
    ]
    if not any(each.severity in (Severity.PROBLEM, Severity.WARN) for each in found):
        rate = "an unknown rate" if load.bytes_per_s is None else rate_words(load.bytes_per_s)
        found.append(
            _finding(
                load,
                Severity.OK,
                f"{counted(len(target.brokers), 'broker')} of {target.alias} for "
                f"{counted(len(source.brokers), 'broker')} of {source.alias}, at {rate}",
                "CPU, memory and network of brokers are not told over Kafka's protocol: compare "
                "them by other means",
            )
        )
    return found


def _brokers(source: ClusterFacts, target: ClusterFacts, load: Load) -> Iterator[Finding]:
    if len(target.brokers) < len(source.brokers):
        yield _finding(
            load,
            Severity.WARN,
            f"{target.alias} has {counted(len(target.brokers), 'broker')}, {source.alias} "
            f"{len(source.brokers)}",
            "after a failover each carries more than the primary's do, unless they are larger",
            "as many brokers, or larger ones; rehearse with the real load",
        )
    to_come = sum(
        len(source.topics[name].partitions) * max(1, load.replication_factor)
        for name, renamed in load.mirrored.items()
        if name in source.topics and renamed not in target.topics
    )
    each = (target.partitions_total + to_come) / max(1, len(target.brokers))
    if each > _REPLICAS_PER_BROKER_MAX:
        yield _finding(
            load,
            Severity.WARN,
            f"about {each:,.0f} replicas on each broker of {target.alias}",
            f"above {_REPLICAS_PER_BROKER_MAX:,} starts, elections and a failover take long",
            "more brokers, or fewer partitions",
        )


def _disks(source: ClusterFacts, target: ClusterFacts, load: Load) -> Iterator[Finding]:
    free = [b.usable_bytes for b in target.brokers.values()]
    total = [b.total_bytes for b in target.brokers.values()]
    if isinstance(source.sizes, Untold) or isinstance(target.sizes, Untold) or None in free:
        reason = next(
            (sizes.why for sizes in (source.sizes, target.sizes) if isinstance(sizes, Untold)),
            "brokers older than Kafka 3.3 do not say how large their volumes are",
        )
        yield _finding(
            load,
            Severity.UNKNOWN,
            f"whether the disks of {target.alias} suffice: {reason}",
            "a full disk stops a broker",
            "grant DESCRIBE on the cluster to both admin clients",
        )
        return
    free_bytes = sum(each or 0 for each in free)
    total_bytes = sum(each or 0 for each in total)
    wanted = _missing_bytes(source.sizes, source, target, target.sizes, load)
    said = f"{wanted / 1e9:,.1f} GB still to be copied, {free_bytes / 1e9:,.1f} GB free"
    fix = "more disk on the target, or a shorter retention there"
    if wanted > free_bytes:
        yield _finding(
            load, Severity.PROBLEM, f"{said} on {target.alias}", "the disks would be full", fix
        )
    elif total_bytes and total_bytes - free_bytes + wanted > _FULL * total_bytes:
        yield _finding(
            load,
            Severity.WARN,
            f"{said} on {target.alias}: its disks would be more than {_FULL:.0%} full",
            "there is little room for a day when producers write there",
            fix,
        )
    elif load.bytes_per_s:
        days = (free_bytes - wanted) / (load.bytes_per_s * load.replication_factor * _DAY_S)
        if days < _DAYS_SOON and not _has_retention(source, load):
            yield _finding(
                load,
                Severity.WARN,
                f"at {rate_words(load.bytes_per_s)} the disks of {target.alias} are full in "
                f"{days:.1f} d, and some topics have no retention",
                "a full disk stops a broker",
                fix,
            )


def _missing_bytes(
    sizes: Mapping[TopicPartition, int],
    source: ClusterFacts,
    target: ClusterFacts,
    present: Mapping[TopicPartition, int],
    load: Load,
) -> int:
    """Bytes on disk, with all replicas, that the target lacks of the mirrored topics."""
    missing = 0
    for name, renamed in load.mirrored.items():
        topic, copy = source.topics.get(name), target.topics.get(renamed)
        if topic is None:
            continue
        for number in topic.partitions:
            here = sizes.get(TopicPartition(topic=name, partition=number), 0)
            there = present.get(TopicPartition(topic=renamed, partition=number), 0)
            replicas = max(1, load.replication_factor)
            if copy is not None and number in copy.partitions:
                replicas = len(copy.partitions[number].replicas)
            missing += max(0, here - there) * replicas
    return missing


def _has_retention(source: ClusterFacts, load: Load) -> bool:
    topics = [source.topics[name] for name in load.mirrored if name in source.topics]
    return all(
        "compact" in (topic.text("cleanup.policy") or "")
        or (topic.number("retention.ms") or -1) >= 0
        for topic in topics
    )


def _quotas(cluster: ClusterFacts, load: Load, key: str, side: str) -> Iterator[Finding]:
    if isinstance(cluster.quotas, Untold):
        yield _finding(
            load,
            Severity.UNKNOWN,
            f"quotas of cluster {cluster.alias}: {cluster.quotas.why}",
            "a quota of the mirror's user bounds how fast it copies",
            "grant DESCRIBE_CONFIGS on the cluster to the admin client",
        )
        return
    binding = [
        (quota.values[key], quota)
        for quota in cluster.quotas
        if key in quota.values and _is_ours(quota, load)
    ]
    if not binding:
        return
    # Kafka's bound is for each broker.
    bound, quota = min(binding, key=lambda pair: pair[0])
    all_brokers = bound * max(1, len(cluster.brokers))
    is_short = load.bytes_per_s is not None and all_brokers < load.bytes_per_s
    yield _finding(
        load,
        Severity.PROBLEM if is_short else Severity.NOTE,
        f"{key} of {quota} on {side} is {rate_words(bound)} a broker"
        + (f", and the source grows by {rate_words(load.bytes_per_s or 0)}" if is_short else ""),
        "the mirror cannot keep up" if is_short else "it bounds how fast a backlog is caught up",
        "raise the quota (kafka-configs --alter --add-config)",
    )


def _is_ours(quota: Quota, load: Load) -> bool:
    """Whether the quota may be the one that counts for the mirror; a default counts for all."""
    user = quota.user in (None, "") or quota.user in load.users
    client = quota.client_id in (None, "") or quota.client_id in load.client_ids
    return user and client


def _finding(load: Load, severity: Severity, what: str, why: str = "", fix: str = "") -> Finding:
    return Finding(
        check=CHECK, about=str(load.flow), severity=severity, what=what, why=why, fix=fix
    )
