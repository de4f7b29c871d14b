"""Where every lane of a flow is at this moment, read from its target. Runs on the driver.

The log first, the ledger second, as a slot does when it resumes a lane: a run is durable before the
first batch that needs it, so a ledger read later than the log always explains the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import assert_never

from heliograph.broker.cluster import LATEST, Cluster
from heliograph.config.schema import FlowConfig
from heliograph.config.transforms import TransformConfig
from heliograph.errors import BrokerError
from heliograph.ledger.locate import (
    AheadOfEnd,
    At,
    Located,
    LogState,
    NeedsScan,
    TargetRecreated,
    Truncated,
    Unexplained,
    anchor_of,
    locate,
    source_next_offset,
)
from heliograph.ledger.store import LedgerStore
from heliograph.ledger.translate import LaneEnd, OffsetMap
from heliograph.ledger.view import LaneRecord, LedgerView
from heliograph.model import LaneId, TopicId, TopicName, TopicPartition
from heliograph.topics.naming import naming_policy

Wanted = Callable[[TopicName], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLocation:
    lane: LaneId
    target: TopicPartition
    record: LaneRecord
    position: int
    exact: bool
    """Whether the log bears it out; otherwise it is what the ledger last noted."""
    source_next_offset: int
    target_next_offset: int
    foreign_records: int
    """Offsets of the target, since the lane began, that this flow did not write."""
    last_sequence: int = -1
    """Of the flow's producer, as the leader remembers it; -1 where it remembers none."""
    transforms: tuple[TransformConfig, ...] = ()
    """What the flow does to records."""

    @property
    def end(self) -> LaneEnd:
        return LaneEnd(
            position=self.position,
            source_next_offset=self.source_next_offset,
            target_next_offset=self.target_next_offset,
        )

    @property
    def offset_map(self) -> OffsetMap:
        return OffsetMap(self.record, self.end)


async def locate_lanes(
    flow: FlowConfig, target: Cluster, store: LedgerStore, wanted: Wanted
) -> list[LaneLocation]:
    """The lanes that have begun, in order of topic and partition; raises `BrokerError`."""
    await store.catch_up()
    producer = store.view.flow
    lanes = [lane for lane in store.view.lanes if wanted(lane.topic)]
    policy = naming_policy(flow)
    targets = {
        lane: TopicPartition(topic=policy.target_topic(lane.topic), partition=lane.partition)
        for lane in lanes
    }
    await target.refresh({partition.topic for partition in targets.values()})
    # The end before the sequence, see `location_of`.
    ends = await target.list_offsets(targets.values(), LATEST)
    sequences = (
        await target.last_sequences(targets.values(), producer.producer_id) if producer else {}
    )
    await store.catch_up()
    locations: list[LaneLocation] = []
    for lane in lanes:
        record = store.view.begun_lane(lane.topic, lane.partition)
        if record is None:
            continue
        to = targets[lane]
        topic = target.topic(to.topic)
        locations.append(
            location_of(
                LaneId(flow=flow.id, source=lane),
                to,
                record,
                last_sequence=sequences.get(to, -1),
                end=ends.get(to, -1),
                target_topic_id=None if topic is None else topic.id,
                transforms=flow.transforms,
            )
        )
    return locations


def location_of(
    lane: LaneId,
    target: TopicPartition,
    record: LaneRecord,
    *,
    last_sequence: int | BrokerError,
    end: int | BrokerError,
    target_topic_id: TopicId | None = None,
    transforms: tuple[TransformConfig, ...] = (),
) -> LaneLocation:
    """As far as it is known without reading the log: what others wrote is counted, not looked at.

    The end must have been read before the sequence: what the end counts and the position does not
    is others' work.
    """
    position: int | None = None
    if not isinstance(last_sequence, BrokerError) and not isinstance(end, BrokerError):
        log = LogState(end=end, last_sequence=last_sequence)
        position = _known_position(locate(record, log, target_topic_id=target_topic_id))
    exact, runs = position is not None, record.runs
    position = anchor_of(record).position if position is None else position
    target_next, first = runs.target_offset_at(position), record.starts[0]
    foreign = target_next - first.target_offset - (position - first.position)
    if exact and not isinstance(end, BrokerError):
        foreign += max(0, end - target_next)
    return LaneLocation(
        lane=lane,
        target=target,
        record=record,
        position=position,
        exact=exact,
        source_next_offset=source_next_offset(record, position),
        target_next_offset=target_next,
        foreign_records=max(0, foreign),
        last_sequence=-1 if isinstance(last_sequence, BrokerError) else last_sequence,
        transforms=transforms,
    )


def _known_position(found: Located) -> int | None:
    match found:
        case At(position=position) | NeedsScan(position=position) | AheadOfEnd(position=position):
            # Ahead of the end: the mirror appends while this reads.
            return position
        case Truncated() | TargetRecreated() | Unexplained():
            return None
        case _:
            assert_never(found)


def first_offset_difference(location: LaneLocation) -> str:
    """What first made target offsets differ from the source's; nothing while they are the same."""
    runs = location.record.runs
    if runs.identical(location.position):
        return ""
    first = runs.first
    if runs.floor and not runs.identical(runs.floor):
        return f"forgotten: before position {runs.floor}"
    if first is not None and first.source_offset != first.target_offset:
        return f"start: source {first.source_offset} went to target {first.target_offset}"
    for before, after in pairwise(runs):
        if after.source_offset == after.target_offset:
            continue
        records = after.position - before.position
        if after.target_offset > before.target_offset + records:
            return f"foreign: others wrote before target {after.target_offset}"
        return f"gap: no records before source {after.source_offset}"
    return ""


def begun_topics(view: LedgerView) -> frozenset[TopicName]:
    """Source topics of which at least one lane has begun."""
    return frozenset(lane.topic for lane in view.begun())


def all_topics(topics: Sequence[str] = ()) -> Wanted:
    """All topics, or only those named."""
    chosen = frozenset(topics)
    return lambda topic: not chosen or topic in chosen
