"""Delete mirrored topics whose source was deleted, where that was asked for. Runs on the driver.

`find_deleted` belongs after planning, `delete_mirrored` after the lanes were handed out: by then
no slot carries a lane of a topic that the source does not have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.view import ClusterView
from heliograph.clock import monotonic_s
from heliograph.config.schema import FlowConfig
from heliograph.errors import BrokerError
from heliograph.ledger.entries import FlowEntry, ledger_topic
from heliograph.ledger.service import LedgerService
from heliograph.ledger.view import LedgerView
from heliograph.model import LaneId, TopicId, TopicName
from heliograph.topics.deletions import BegunTopic, Deletions, GoneTopic, plan_deletions
from heliograph.topics.naming import naming_policy


class Absences:
    """How long topics of one source have been gone without a look that found them."""

    def __init__(self) -> None:
        self._since_s: dict[TopicName, float] = {}

    def look(self, absent: Collection[TopicName], at_s: float) -> Mapping[TopicName, float]:
        """Note one look; for how long each absent topic has been so, 0 at the first look."""
        self._since_s = {topic: self._since_s.get(topic, at_s) for topic in absent}
        return {topic: at_s - since_s for topic, since_s in self._since_s.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    topics: tuple[GoneTopic, ...]
    problems: Mapping[TopicName, BrokerError]
    """Target topics that could not be deleted; tried again at the next look."""


def find_deleted(
    flow: FlowConfig,
    flows: Iterable[FlowConfig],
    *,
    source_admin: ClusterAdmin,
    source: ClusterView,
    target: ClusterView,
    ledgers: LedgerService,
    absences: Absences,
) -> Deletions:
    """Look for mirrored topics that the source does not know any more; changes nothing.

    `source` and `target` are fresh views, `flows` all of the configuration. A topic is found at the
    first look that is at least one refresh interval after the look that missed it first.
    """
    if flow.on_topic_deleted != "delete":
        return Deletions()
    producer, begun = ledgers.ask(flow.id, _begun)
    missing = [topic for topic in begun if topic not in source.topics]
    # A list of all topics leaves out what we may not see; asked by name, a broker tells "unknown"
    # from "not allowed".
    known = source_admin.describe_each(missing) if missing else {}
    absent_s = absences.look([topic for topic in missing if topic not in known], monotonic_s())
    if producer is None or not absent_s:
        return Deletions()
    return plan_deletions(
        flow,
        source=source,
        target=target,
        began_with=producer.source_cluster_id,
        begun=begun,
        absent_s=absent_s,
        written_by_others=_written_by_others(flow, flows, target, ledgers),
    )


def delete_mirrored(
    flow: FlowConfig,
    gone: Sequence[GoneTopic],
    *,
    target_admin: ClusterAdmin,
    ledgers: LedgerService,
    carried: Collection[LaneId],
) -> Deleted:
    """Delete target topics and forget their lanes; leaves what a slot still carries.

    The topic first: a crash in between leaves lanes in the ledger, so that all of this is found
    and done again. A ledger without them would leave the topic behind for good.
    """
    busy = {lane.source.topic for lane in carried if lane.flow == flow.id}
    ready = [topic for topic in gone if topic.source not in busy]
    outcomes = target_admin.delete_topics([topic.target for topic in ready])
    problems = {n: outcome for n, outcome in outcomes.items() if isinstance(outcome, BrokerError)}
    deleted = tuple(topic for topic in ready if topic.target not in problems)
    if deleted:
        ledgers.forget_lanes(flow.id, {topic.source for topic in deleted})
    return Deleted(topics=deleted, problems=problems)


def _begun(view: LedgerView) -> tuple[FlowEntry | None, Mapping[TopicName, BegunTopic]]:
    partitions: dict[TopicName, list[int]] = {}
    ids: dict[TopicName, set[TopicId]] = {}
    for lane, record in view.begun().items():
        partitions.setdefault(lane.topic, []).append(lane.partition)
        known = (start.target_topic_id for start in record.starts)
        ids.setdefault(lane.topic, set()).update(each for each in known if each is not None)
    begun = {
        topic: BegunTopic(partitions=tuple(numbers), target_ids=frozenset(ids[topic]))
        for topic, numbers in partitions.items()
    }
    return view.flow, begun


def _written_by_others(
    flow: FlowConfig, flows: Iterable[FlowConfig], target: ClusterView, ledgers: LedgerService
) -> frozenset[TopicName]:
    """Topics of the target that lanes of other flows have begun to write."""
    written: set[TopicName] = set()
    for other in flows:
        is_beside = other.id.target == flow.id.target and other.id != flow.id
        # Reading a ledger that is not there would wait for it to appear.
        if is_beside and ledger_topic(other.id.source) in target.topics:
            policy = naming_policy(other)
            _, begun = ledgers.ask(other.id, _begun)
            written.update(policy.target_topic(topic) for topic in begun)
    return frozenset(written)
