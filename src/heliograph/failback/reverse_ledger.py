"""Write the ledger of the way back, so that its lanes go on exactly where the histories part.

Driver only. The ledger is on the old primary. Its lanes get the map of the flow that was failed
over, told from the other side, and a producer that is in no log there: so a resume goes by the
heads written here. All of it may be written again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.cluster import EARLIEST, LATEST, Cluster
from heliograph.broker.seed import seed
from heliograph.clock import monotonic_s, now_ms
from heliograph.errors import BrokerError, InvariantError, MirrorError, RecoveryRefused
from heliograph.failback.context import Scene
from heliograph.failback.divergence import (
    DELETING,
    Beginning,
    PartitionParting,
    TopicParting,
    Treatment,
    beginning,
    in_partition,
)
from heliograph.failback.lane import known, settled_lane
from heliograph.ledger.access import LedgerHand
from heliograph.ledger.entries import Entry, FlowEntry, FlowKey, Tombstone, new_author
from heliograph.ledger.heads import settled_head
from heliograph.ledger.locations import LanePlace, every, find_places
from heliograph.ledger.reverse import LaneBeginning, has_unknown_before, inverted, lane_entries
from heliograph.ledger.runs import Run
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
    scene: Scene, partings: tuple[TopicParting, ...], seeder: tuple[int, int]
) -> Begun:
    """Seed what was emptied, then write every lane. Raises `MirrorError`; may be repeated.

    `seeder` is a producer of its own for filler: records of the flow's producer must begin with the
    position they have, and a broker takes any sequence only from a producer that it does not know.
    """
    sides, chosen = scene.sides, scene.treatments(partings)
    names = [each.topic for each in partings if chosen[each.topic] is not Treatment.LEAVE]
    await sides.target.refresh(names)
    forward = {
        place.lane.source: place
        for place in await find_places(sides.flow, sides.target, sides.hand.store, every())
    }
    async with scene.back_ledger() as hand:
        await hand.target.refresh(names)
        lanes: list[LaneBeginning] = []
        for topic in partings:
            what = chosen[topic.topic]
            if what is None:
                raise InvariantError(f"{topic.topic}: nobody chose what to do with it")
            for parting in topic.partitions:
                begin = beginning(topic, parting, what, preserve=scene.preserve)
                if begin is not None:
                    at = in_partition(topic, parting)
                    end = await _ready(hand.target, at, begin, Stamp(*seeder))
                    if what not in DELETING and begin.seed_to is None:
                        _require_unmoved(hand.target, at, parting, end)
                    place = forward.get(at)
                    lanes.append(await _lane(scene, hand, begin, parting, place, at, end))
        await _write(scene, hand, names, lanes)
        await _require_written(scene, hand, lanes)
    identical = sum(lane.here.source_offset == lane.here.target_offset for lane in lanes)
    return Begun(lanes=len(lanes), identical=identical)


def _require_unmoved(old: Cluster, at: TopicPartition, parting: PartitionParting, end: int) -> None:
    """What was written since is saved nowhere, and nobody would be told of it."""
    if end != parting.source_end:
        raise RecoveryRefused(
            f"somebody still writes to {at} on {old.alias}: it ended at {parting.source_end} when "
            f"it was looked at and ends at {end} now; stop that, give this failback up with "
            "--abandon and begin again"
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
    scene: Scene,
    hand: LedgerHand,
    begin: Beginning,
    parting: PartitionParting,
    place: LanePlace | None,
    at: TopicPartition,
    old_end: int,
) -> LaneBeginning:
    present, old = scene.sides.target.topic(at.topic), hand.target.topic(at.topic)
    before: tuple[Run, ...] = ()
    adopted = False
    if begin.keeps_map:
        if place is None or parting.target_start is None or parting.target_end is None:
            raise MirrorError(f"{at}: the ledger has forgotten its lane since it was looked at")
        bounds = parting.target_start, parting.target_end
        settled = await settled_lane(scene.sides, place, bounds)
        before = inverted(settled.runs, begin.position)
        first = before[0].position if before else begin.position
        adopted = has_unknown_before(place.record.starts, first)
    return LaneBeginning(
        topic=at.topic,
        partition=at.partition,
        here=Run(
            position=begin.position,
            source_offset=begin.source_offset,
            target_offset=old_end,
        ),
        before=before,
        source_end_offset=parting.target_end or 0,
        source_topic_id=None if present is None else present.id,
        target_topic_id=None if old is None else old.id,
        adopted=adopted,
    )


async def _write(
    scene: Scene, hand: LedgerHand, names: Sequence[str], lanes: Sequence[LaneBeginning]
) -> None:
    """Other lanes keep their places; these forget what was known of them and begin."""
    store, wanted = hand.store, frozenset(names)
    others = await find_places(
        scene.back_flow, hand.target, store, lambda topic: topic not in wanted
    )
    await store.write(settled_head(place, place.record.head) for place in others if place.exact)
    for lane in store.view.lanes:
        if lane.topic in wanted:
            keys = store.view.lane_keys(lane.topic, lane.partition)
            await store.write(Tombstone(key=key) for key in keys)
    author, at_ms = new_author(), now_ms()
    for begun in lanes:
        await store.write(lane_entries(begun, author=author, at_ms=at_ms, detail=_DETAIL))
    await store.write(await _new_producer(scene, hand))


async def _new_producer(scene: Scene, hand: LedgerHand) -> list[Entry | Tombstone]:
    """The broker may know the old one's last sequence, which is not the lanes' position now."""
    old = hand.store.view.flow
    cluster = await asyncio.to_thread(ClusterAdmin(scene.sides.target_config).describe)
    producer_id, epoch = await hand.target.new_producer_id()
    entry = FlowEntry(
        flow=scene.back,
        producer_id=producer_id,
        producer_epoch=epoch,
        source_cluster_id=cluster.cluster_id or "",
        created_ms=now_ms(),
    )
    return [entry] if old is None else [Tombstone(key=FlowKey(producer_id=old.producer_id)), entry]


async def _require_written(scene: Scene, hand: LedgerHand, lanes: Sequence[LaneBeginning]) -> None:
    """What a driver will find is what was meant."""
    places = {
        place.lane.source: place
        for place in await find_places(scene.back_flow, hand.target, hand.store, every())
    }
    for lane in lanes:
        at = TopicPartition(topic=lane.topic, partition=lane.partition)
        place = places.get(at)
        found = None
        if place is not None:
            found = Run(
                position=place.position,
                source_offset=place.source_next_offset,
                target_offset=place.target_next_offset,
            )
        if found != lane.here:
            raise InvariantError(f"{scene.back}/{at}: written as {lane.here}, read as {found}")
