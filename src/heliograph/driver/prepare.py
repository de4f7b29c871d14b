"""Make the target ready before the first record: ledger, topics, partitions. Runs on the driver.

Every step may be repeated, and may be taken by another driver in between: what is there already is
as good as what was made here. So a crash at any line is mended by running again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from heliograph.broker.admin import Change, ClusterAdmin, Outcome
from heliograph.broker.topic_changes import PartitionsToGrow, TopicToCreate
from heliograph.broker.view import TopicView
from heliograph.compat.own_topics import letters_of
from heliograph.config.schema import FlowConfig
from heliograph.errors import BrokerError
from heliograph.ledger.entries import ledger_topic
from heliograph.ledger.settings import ensure_ledger_topic
from heliograph.model import FlowId, TopicName
from heliograph.topics.provisioning import Provisioning
from heliograph.words import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What was done for a flow, and what could not be."""

    flow: FlowId
    ledger: Change
    remarks: tuple[str, ...]
    """What of the ledger's settings could not be corrected, and why there is no topic for dead
    letters."""
    created: tuple[TopicName, ...]
    grown: tuple[TopicName, ...]
    problems: Mapping[TopicName, BrokerError]
    """Topics that are not ready, by target name; their lanes wait, the others go on."""

    @property
    def words(self) -> str:
        parts = [("created", self.created), ("grew", self.grown)]
        return "; ".join(
            f"{what} {counted(len(names), 'topic')}: {', '.join(names)}"
            for what, names in parts
            if names
        )


def prepare_target(target: ClusterAdmin, flow: FlowConfig, provisioning: Provisioning) -> Prepared:
    """Create and grow what the plan says, and wait until the target shows it.

    Raises `BrokerError` where nothing at all can be prepared: the cluster does not answer, or there
    can be no ledger.
    """
    ledger = ensure_ledger_topic(
        target, ledger_topic(flow.id.source), replication_factor=flow.replication_factor
    )
    remarks = (*ledger.remarks, *_with_letters_topic(target, flow))
    creations = target.create_topics(provisioning.to_create)
    growths = [*provisioning.to_grow, *_grown_late(target, provisioning.to_create, creations)]
    growth_outcomes = target.grow_partitions(growths)

    wanted = {topic.name: topic.partitions for topic in provisioning.to_create}
    wanted |= {topic.name: topic.partitions for topic in growths}
    refused = _refused({**creations, **growth_outcomes})
    shown = target.await_partitions({n: c for n, c in wanted.items() if n not in refused})
    return Prepared(
        flow=flow.id,
        ledger=ledger.change,
        remarks=remarks,
        created=_done(creations),
        grown=_done(growth_outcomes),
        problems={**refused, **_refused(shown)},
    )


def _with_letters_topic(target: ClusterAdmin, flow: FlowConfig) -> tuple[str, ...]:
    """Lanes without bad records need none, so the others do not wait for it."""
    if not flow.writes_letters:
        return ()
    topic = letters_of(flow).to_create
    outcome = target.create_topics([topic])[topic.name]
    if isinstance(outcome, BrokerError):
        return (f"there is no topic {topic.name} for dead letters: {outcome}",)
    return ()


def _grown_late(
    target: ClusterAdmin,
    wanted: tuple[TopicToCreate, ...],
    creations: Mapping[TopicName, Outcome],
) -> list[PartitionsToGrow]:
    """Topics somebody else created after we looked, with fewer partitions than the source has.

    A broker with auto.create.topics.enable does that as soon as a client asks for the topic.
    """
    by_name = {topic.name: topic for topic in wanted if creations[topic.name] is Change.ALREADY}
    return [
        PartitionsToGrow(
            name=name,
            partitions_before=topic.partition_count,
            partitions=by_name[name].partitions,
        )
        for name, topic in target.describe_each(by_name).items()
        if isinstance(topic, TopicView) and topic.partition_count < by_name[name].partitions
    ]


def _done(outcomes: Mapping[TopicName, Outcome]) -> tuple[TopicName, ...]:
    return tuple(sorted(name for name, outcome in outcomes.items() if outcome is Change.DONE))


def _refused(outcomes: Mapping[TopicName, Outcome]) -> dict[TopicName, BrokerError]:
    return {name: out for name, out in outcomes.items() if isinstance(out, BrokerError)}
