"""Write the ledger of the way back, so that its lanes go on exactly where the histories part.

Driver only. The ledger is on the old primary. Its lanes get the map of the flow that was failed
over, reversed, and a producer that is in no log there: so a resume goes by the
heads written here. All of it may be written again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.cluster import EARLIEST, LATEST, Cluster
from heliograph.broker.seed import seed
from heliograph.clock import monotonic_s, now_ms
from heliograph.errors import BrokerError, InvariantError, MirrorError, RecoveryRefused
from heliograph.failback.both_written import OwnPlace, own_place
from heliograph.failback.context import FailbackContext
from heliograph.failback.divergence import (
    DELETING,
    Beginning,
    PartitionDivergence,
    Resolution,
    TopicDivergence,
    beginning,
    in_partition,
)
from heliograph.failback.lane import known, settled_lane
from heliograph.ledger.access import OpenLedger
from heliograph.ledger.entries import (
    Entry,
    FlowEntry,
    MemoEntry,
    StartKey,
    Tombstone,
    new_author,
)
from heliograph.ledger.heads import settled_head
from heliograph.ledger.kept import NOTHING_KEPT, kept_entry, kept_of
from heliograph.ledger.locations import LaneLocation, all_topics, locate_lanes
from heliograph.ledger.mark import new_flow_producer, renewed
from heliograph.ledger.reverse import LaneStart, lane_entries, reversed_anchors, reversed_runs
from heliograph.ledger.runs import Run
from heliograph.ledger.translate import has_unknown_before
from heliograph.model import OffsetRange, TopicPartition
from heliograph.wire.batch import Stamp

_SEED_S_MAX: Final = 60.0
_PAUSE_S: Final = 0.2
_DETAIL: Final = "begun by a failback"


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    lanes: int
    identical: int


async def begin_lanes(
    context: FailbackContext, divergences: tuple[TopicDivergence, ...], seeder: tuple[int, int]
) -> Begun:
    """Seed what was emptied, then write every lane. Raises `MirrorError`; may be repeated.

    `seeder` is a producer of its own for filler: records of the flow's producer must begin with the
    position they have, and a broker takes any sequence only from a producer that it does not know.
    """
    pair, chosen = context.pair, context.resolutions(divergences)
    names = [each.topic for each in divergences if chosen[each.topic] is not Resolution.LEAVE]
    await pair.target.refresh(names)
    forward = {
        location.lane.source: location
        for location in await locate_lanes(pair.flow, pair.target, pair.ledger.store, all_topics())
    }
    async with context.back_ledger() as ledger:
        await ledger.target.refresh(names)
        stood = {
            location.lane.source: location
            for location in await locate_lanes(
                context.back_flow, ledger.target, ledger.store, all_topics()
            )
        }
        lanes: list[LaneStart] = []
        going_on: dict[TopicPartition, LaneStart] = {}
        kept: dict[TopicPartition, OffsetRange] = {}
        for topic in divergences:
            what = chosen[topic.topic]
            if what is None:
                raise InvariantError(f"{topic.topic}: no resolution was chosen for it")
            for divergence in topic.partitions:
                begin = beginning(topic, divergence, what, preserve=context.preserve)
                if begin is not None:
                    at = in_partition(topic, divergence)
                    end = await _ready(ledger.target, at, begin, Stamp(*seeder))
                    if what not in DELETING and begin.seed_to is None:
                        _require_unmoved(ledger.target, at, divergence, end)
                    location = forward.get(at)
                    own = None
                    if what not in DELETING and not topic.is_recreated:
                        own = await own_place(context, ledger, divergence, location, stood.get(at))
                    if own is not None:
                        going_on[at] = _own_lane(context, ledger, own, stood[at], end)
                        kept[at] = own.kept or _still_kept(context, ledger, at)
                        continue
                    lanes.append(await _lane(context, ledger, begin, divergence, location, at, end))
        await ledger.store.write(_kept(context, divergences, kept))
        await _write(context, ledger, names, lanes, going_on)
        lanes += going_on.values()
        await _require_written(context, ledger, lanes)
    identical = sum(lane.here.source_offset == lane.here.target_offset for lane in lanes)
    return Begun(lanes=len(lanes), identical=identical)


def _require_unmoved(
    old: Cluster, at: TopicPartition, divergence: PartitionDivergence, end: int
) -> None:
    """What was written since is saved nowhere and would be lost without a word."""
    if end != divergence.source_end:
        raise RecoveryRefused(
            f"{at} on {old.alias} is still written to: it ended at {divergence.source_end} when it "
            f"was compared and ends at {end} now; stop its producers, abandon this failback with "
            "--abandon and start it again"
        )


async def _ready(old: Cluster, at: TopicPartition, begin: Beginning, stamp: Stamp) -> int:
    """The end of the old primary's log, which begins where it should if it is a new one."""
    deadline_s = monotonic_s() + _SEED_S_MAX
    while True:
        try:
            start = known((await old.list_offsets([at], EARLIEST))[at])
            end = known((await old.list_offsets([at], LATEST))[at])
            if not begin.seed_to:
                return end
            last = known((await old.last_sequences([at], stamp.producer_id))[at])
            return await seed(
                old,
                at,
                stamp,
                log=OffsetRange(start=start, end=end),
                last_sequence=last,
                wanted=begin.seed_to,
            )
        except BrokerError as exc:
            # Leaders of a topic that was created a moment ago are still being told.
            if not exc.retriable or monotonic_s() > deadline_s:
                raise
            await asyncio.sleep(_PAUSE_S)
            await old.refresh([at.topic])


async def _lane(
    context: FailbackContext,
    ledger: OpenLedger,
    begin: Beginning,
    divergence: PartitionDivergence,
    location: LaneLocation | None,
    at: TopicPartition,
    old_end: int,
) -> LaneStart:
    present, old = context.pair.target.topic(at.topic), ledger.target.topic(at.topic)
    before: tuple[Run, ...] = ()
    anchors: tuple[Run, ...] = ()
    adopted = is_identical = False
    if begin.keeps_map:
        if location is None or divergence.target_start is None or divergence.target_end is None:
            raise MirrorError(f"{at}: the ledger has forgotten its lane since it was looked at")
        bounds = divergence.target_start, divergence.target_end
        settled = await settled_lane(context.pair, location, bounds)
        before = reversed_runs(settled.runs, begin.position)
        anchors = reversed_anchors(settled.runs) if before else ()
        is_identical = bool(before) and settled.runs.identical(before[0].position)
        first = (anchors or before)[0].position if before else begin.position
        adopted = has_unknown_before(location.record.starts, first)
    return LaneStart(
        topic=at.topic,
        partition=at.partition,
        here=Run(
            position=begin.position,
            source_offset=begin.source_offset,
            target_offset=old_end,
        ),
        before=before,
        anchors=anchors,
        is_identical=is_identical,
        source_end_offset=divergence.target_end or 0,
        source_topic_id=None if present is None else present.id,
        target_topic_id=None if old is None else old.id,
        adopted=adopted,
    )


async def _write(
    context: FailbackContext,
    ledger: OpenLedger,
    names: Sequence[str],
    lanes: Sequence[LaneStart],
    going_on: Mapping[TopicPartition, LaneStart],
) -> None:
    """Other lanes keep their places; `lanes` forget what was known of them and begin. Those that go
    on keep what is known: nothing else says where they stood, should this be cut off."""
    store, wanted = ledger.store, frozenset(names)
    others = await locate_lanes(
        context.back_flow, ledger.target, store, lambda topic: topic not in wanted
    )
    await store.write(
        settled_head(location, location.record.head) for location in others if location.exact
    )
    for lane in store.view.lanes:
        if lane.topic in wanted:
            keys = store.view.lane_keys(lane.topic, lane.partition)
            if lane in going_on:
                place = going_on[lane].here.position
                keys = tuple(
                    key for key in keys if isinstance(key, StartKey) and key.position > place
                )
            await store.write(Tombstone(key=key) for key in keys)
    author, at_ms = new_author(), now_ms()
    for going in going_on.values():
        # Without its start, which is there.
        written = lane_entries(going, author=author, at_ms=at_ms, detail=_DETAIL)
        await store.write(written[1:])
    for begun in lanes:
        await store.write(lane_entries(begun, author=author, at_ms=at_ms, detail=_DETAIL))
    await store.write(await _new_producer(context, ledger))


def _own_lane(
    context: FailbackContext,
    ledger: OpenLedger,
    own: OwnPlace,
    stood: LaneLocation,
    old_end: int,
) -> LaneStart:
    """A lane that goes on by its own map; see `both_written`."""
    at = stood.lane.source
    # It may be moved back, also behind a start that does not count any more then.
    start = [each for each in stood.record.starts if each.position <= own.position][-1]
    present, old = context.pair.target.topic(at.topic), ledger.target.topic(at.topic)
    return LaneStart(
        topic=at.topic,
        partition=at.partition,
        here=Run(position=own.position, source_offset=own.source_offset, target_offset=old_end),
        before=own.runs,
        source_end_offset=stood.source_next_offset,
        source_topic_id=None if present is None else present.id,
        target_topic_id=None if old is None else old.id,
        begun_at=start.source_offset if own.position == start.position else None,
    )


def _still_kept(context: FailbackContext, ledger: OpenLedger, at: TopicPartition) -> OffsetRange:
    """What an earlier failback noted, and the lane may not have passed yet."""
    present = context.pair.target.topic(at.topic)
    if present is None:
        return NOTHING_KEPT
    return kept_of(ledger.store.view, at, present.id)


def _kept(
    context: FailbackContext,
    divergences: tuple[TopicDivergence, ...],
    own: Mapping[TopicPartition, OffsetRange],
) -> Iterator[MemoEntry]:
    """What the present primary had when it was compared goes back, whoever wrote it there; of lanes
    that go on by their own map only what the old one has lost."""
    for each in divergences:
        present = context.pair.target.topic(each.topic)
        kept = {
            at.partition: own.get(in_partition(each, at), OffsetRange(start=0, end=at.target_end))
            for at in each.partitions
            if at.target_end is not None
        }
        if present is not None and kept:
            yield kept_entry(each.topic, present.id, kept)


async def _new_producer(context: FailbackContext, ledger: OpenLedger) -> list[Entry]:
    """The broker may know the old one's last sequence, which is not the lanes' position now."""
    cluster = await asyncio.to_thread(ClusterAdmin(context.pair.target_config).describe)
    producer_id, epoch = await new_flow_producer(ledger.target, context.back)
    entry = FlowEntry(
        flow=context.back,
        producer_id=producer_id,
        producer_epoch=epoch,
        source_cluster_id=cluster.cluster_id or "",
        created_ms=now_ms(),
    )
    return renewed(ledger.store.view, entry)


async def _require_written(
    context: FailbackContext, ledger: OpenLedger, lanes: Sequence[LaneStart]
) -> None:
    """What a driver will find is what was meant."""
    locations = {
        location.lane.source: location
        for location in await locate_lanes(
            context.back_flow, ledger.target, ledger.store, all_topics()
        )
    }
    for lane in lanes:
        at = TopicPartition(topic=lane.topic, partition=lane.partition)
        location = locations.get(at)
        found = None
        if location is not None:
            found = Run(
                position=location.position,
                source_offset=location.source_next_offset,
                target_offset=location.target_next_offset,
            )
        if found != lane.here:
            raise InvariantError(f"{context.back}/{at}: written as {lane.here}, read as {found}")
