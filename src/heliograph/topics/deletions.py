"""Which target topics go because their source topics went. No I/O; runs anywhere.

Deleting is asked for by `on.topic.deleted = delete`, and cannot be undone. So whatever might be
something else than a deleted topic is left alone, and said.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from heliograph.broker.view import ClusterView
from heliograph.config.schema import FlowConfig
from heliograph.model import TopicId, TopicName
from heliograph.topics.selection import select_topics


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunTopic:
    """What the ledger knows of a source topic that was mirrored."""

    partitions: tuple[int, ...]
    target_ids: frozenset[TopicId]
    """Ids of the target topic that its lanes began with; none where the cluster has no ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoneTopic:
    source: TopicName
    target: TopicName
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletions:
    to_delete: tuple[GoneTopic, ...] = ()
    refused: tuple[str, ...] = ()
    """Sentences about what looks deleted and is left alone."""


def plan_deletions(
    flow: FlowConfig,
    *,
    source: ClusterView,
    target: ClusterView,
    began_with: str,
    begun: Mapping[TopicName, BegunTopic],
    absent_s: Mapping[TopicName, float],
    written_by_others: Collection[TopicName],
) -> Deletions:
    """Topics of `begun` that are gone for good.

    `began_with` is the id of the source cluster by the ledger. `absent_s` has, of each topic that
    the source says it does not know, for how long that has been so.
    """
    if flow.on_topic_deleted != "delete" or not absent_s:
        return Deletions()
    if not began_with or source.cluster_id != began_with:
        why = f"the source is cluster {source.cluster_id}, the flow began with {began_with or '?'}"
        return Deletions(refused=(f"no topic is deleted: {why}",))
    if not any(topic in source.topics for topic in begun):
        why = "none of the mirrored topics is left on the source, which may be something else"
        return Deletions(refused=(f"no topic is deleted: {why}",))
    old = sorted(
        topic
        for topic, for_s in absent_s.items()
        if topic in begun and topic not in source.topics and for_s >= flow.refresh_interval_s
    )
    to_delete: list[GoneTopic] = []
    refused: list[str] = []
    # What the flow would not mirror any more was given up before its source was deleted.
    for name, renamed in select_topics(flow, old).mirrored:
        present, ids = target.topics.get(renamed), begun[name].target_ids
        if renamed in written_by_others:
            refused.append(f"{renamed} is not deleted with its source: another flow writes it")
        elif present is not None and ids and present.id not in ids:
            refused.append(f"{renamed} is not deleted with its source: it is not the flow's topic")
        else:
            partitions = begun[name].partitions
            to_delete.append(GoneTopic(source=name, target=renamed, partitions=partitions))
    return Deletions(to_delete=tuple(to_delete), refused=tuple(refused))
