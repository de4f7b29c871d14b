"""The steps of a failback, each safe to repeat. Driver only.

Until the last one neither flow runs: the one that was failed over is fenced since, the way back is
fenced by the first step. Nothing is deleted before everything that only the old primary has is
saved and counted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.admin import Outcome as AdminOutcome
from heliograph.broker.cluster import EARLIEST, LATEST, Cluster
from heliograph.broker.groups import GroupAdmin
from heliograph.broker.topic_changes import TopicToCreate
from heliograph.clock import monotonic_s, now_ms
from heliograph.errors import BrokerError, BrokerUnreachable, MirrorError, RecoveryRefused
from heliograph.failback.context import FIND, Scene
from heliograph.failback.divergence import DELETING, TopicParting, Treatment, in_partition, to_facts
from heliograph.failback.export import (
    ExportTo,
    Unmirrored,
    end_of_topic,
    ensure_topic,
    export_records,
)
from heliograph.failback.find import find_partings
from heliograph.failback.groups import Translate, move_groups_back
from heliograph.failback.lane import known
from heliograph.failback.reverse_ledger import begin_lanes
from heliograph.failover.quiesce import await_unled
from heliograph.failover.steps import counted
from heliograph.ledger.fence import Fence, fence_of, lift, put_up
from heliograph.ledger.locations import LanePlace, every, find_places
from heliograph.ledger.translate import Translated, to_source, to_target
from heliograph.model import OffsetRange, TopicName, TopicPartition
from heliograph.procedure.hooks import hook_event, hooks_told, run_hooks
from heliograph.procedure.steps import Course, Logbook, Outcome
from heliograph.topics.filters import group_filter

CHECK: Final = "check"
EXPORT: Final = "export"
CLEAR: Final = "clear"
BEGIN: Final = "begin"
GROUPS: Final = "groups"
OPEN: Final = "open"
_RECREATE_S_MAX: Final = 60.0
_LOOK_S: Final = 0.2


async def check_step(scene: Scene, _: Course) -> Outcome:
    """Both clusters answer, and nobody carries the way back until it is open."""
    sides = scene.sides
    for cluster in (sides.source_config, sides.target_config):
        await asyncio.to_thread(ClusterAdmin(cluster).topic_names)
    if scene.is_renaming:
        return Outcome(
            told=f"both clusters answer; only {sides.flow.id} writes its topics on "
            f"{sides.flow.id.target}, so their histories cannot part"
        )
    async with scene.back_ledger() as hand:
        if fence_of(hand.store.view) is None:
            why = f"a failback of {sides.flow.id} is under way; it opens this flow when it is done"
            await hand.store.write_or_refuse([put_up(Fence(at_ms=now_ms(), why=why))])
        stood = await await_unled(hand, scene.back, lambda text: scene.tell(CHECK, text))
    return Outcome(told=f"both clusters answer; {scene.back} is held back ({stood})")


async def find_step(scene: Scene, course: Course) -> Outcome:
    partings = scene.looked.partings or await find_partings(scene.sides)
    for each in partings:
        await scene.logbook.mark(course, FIND, each.topic, to_facts(each))
    sides = scene.sides
    first_offset = await asyncio.to_thread(end_of_topic, sides.target_config, scene.order.topic)
    async with scene.back_ledger() as hand:
        # As the producer that will write there, not as the consumer that reads: see permissions.
        seeder = await hand.target.new_producer_id()
    parted = [each for each in partings if each.is_parted]
    unmirrored = sum(each.unmirrored_records for each in parted)
    told = f"{counted(len(partings), 'topic')}, none parted"
    if parted:
        told = (
            f"{len(parted)} of {counted(len(partings), 'topic')} parted: "
            f"{counted(unmirrored, 'record')} on {sides.flow.id.source} never mirrored"
        )
    return Outcome(told=told, facts={"export_from": first_offset, "seeder": list(seeder)})


async def export_step(scene: Scene, course: Course) -> Outcome:
    """Everything that only the old primary has, before anything there is touched."""
    partings = await scene.partings(course)
    wanted = list(_unmirrored(partings))
    if not wanted:
        return Outcome(told="there is nothing to save", facts={"records": 0})
    sides, topic = scene.sides, scene.order.topic
    await asyncio.to_thread(
        ensure_topic,
        sides.target_config,
        topic,
        replication_factor=sides.flow.replication_factor,
        message_bytes_max=max(int(each.configs.get("max.message.bytes", 0)) for each in partings),
    )
    to = ExportTo(
        topic=topic,
        folder=scene.order.export_dir.absolute(),
        course=course.id,
        first_offset=int(course.facts(FIND).get("export_from", 0)),
    )
    exported = await asyncio.to_thread(
        export_records,
        sides.source_config,
        sides.target_config,
        wanted,
        to,
        read_committed=sides.flow.read_committed,
        tell=lambda text: scene.tell(EXPORT, text),
    )
    folder = to.folder / course.id
    return Outcome(
        told=f"{counted(exported.records, 'record')} saved in topic {topic} on "
        f"{sides.flow.id.target} and in {counted(len(exported.files), 'file')} in {folder}",
        facts={
            "records": exported.records,
            "topic": topic,
            "directory": str(folder),
            "files": len(exported.files),
        },
    )


def _unmirrored(partings: Iterable[TopicParting]) -> Iterable[Unmirrored]:
    for topic in partings:
        for each in topic.partitions:
            if each.unmirrored_records and each.source_end is not None:
                start = max(each.source_offset, each.source_start or 0)
                yield Unmirrored(
                    partition=in_partition(topic, each),
                    offsets=OffsetRange(start=start, end=each.source_end),
                    records=each.unmirrored_records,
                )


# -- topics that are deleted and created again


async def clear_step(scene: Scene, course: Course) -> Outcome:
    partings = await scene.partings(course)
    chosen = scene.treatments(partings)
    wanted = [each for each in partings if chosen[each.topic] in DELETING]
    if not wanted:
        return Outcome(told="nothing is deleted", facts={"topics": 0})
    if not scene.order.may_delete:
        raise RecoveryRefused(
            f"{counted(len(wanted), 'topic')} on {scene.order.flow.source} would be deleted; "
            "say --yes"
        )
    await _require_unmoved(scene, wanted)
    admin = ClusterAdmin(scene.sides.config.target_of(scene.back))
    await asyncio.to_thread(_recreate, admin, wanted)
    records = sum(each.source_records for each in wanted)
    return Outcome(
        told=f"{counted(len(wanted), 'topic')} with {counted(records, 'offset')} deleted on "
        f"{scene.order.flow.source} and created again, empty",
        facts={"topics": len(wanted), "offsets": records},
    )


async def _require_unmoved(scene: Scene, topics: Sequence[TopicParting]) -> None:
    """Whoever still writes to the old primary would lose what is not saved."""
    source = scene.sides.source
    await source.refresh([each.topic for each in topics])
    for topic in topics:
        seen = source.topic(topic.topic)
        if seen is None or seen.id != topic.source_topic_id:
            continue
        ends = await source.list_offsets(
            [in_partition(topic, each) for each in topic.partitions if each.source_end is not None],
            LATEST,
        )
        for each in topic.partitions:
            end = ends.get(in_partition(topic, each))
            if end is not None and known(end) != each.source_end:
                raise RecoveryRefused(
                    f"somebody still writes to {in_partition(topic, each)} on {source.alias}: it "
                    f"ended at {each.source_end} when its records were saved and ends at {end} "
                    "now; stop that, give this failback up with --abandon and begin again"
                )


def _recreate(admin: ClusterAdmin, topics: Sequence[TopicParting]) -> None:
    """Each that is still the old one is deleted; each that is not there is created."""
    ids = {each.topic: each.source_topic_id for each in topics}
    seen = admin.describe_topics(ids)
    old = [name for name, topic in seen.items() if topic.id == ids[name]]
    _require(admin.delete_topics(old).values())
    deadline_s = monotonic_s() + _RECREATE_S_MAX
    while True:
        seen = admin.describe_topics(ids)
        gone = [each for each in topics if each.topic not in seen]
        outcomes = admin.create_topics([_creation(each) for each in gone]) if gone else {}
        _require(outcomes.values())
        if all(each.topic in seen and seen[each.topic].id != ids[each.topic] for each in topics):
            break
        if monotonic_s() > deadline_s:
            raise BrokerUnreachable(
                f"cluster {admin.alias}: {len(gone)} topics are not there again "
                f"{_RECREATE_S_MAX:.0f} s after they were deleted"
            )
        # A broker that has not heard of it yet still shows the topic that was deleted.
        time.sleep(_LOOK_S)
    _require(admin.await_partitions({e.topic: e.source_partition_count for e in topics}).values())


def _creation(topic: TopicParting) -> TopicToCreate:
    return TopicToCreate(
        source=topic.topic,
        name=topic.topic,
        partitions=topic.source_partition_count,
        replication_factor=topic.replication_factor,
        configs=topic.configs,
    )


def _require(outcomes: Iterable[AdminOutcome]) -> None:
    for outcome in outcomes:
        if isinstance(outcome, BrokerError):
            raise outcome


# -- the way back


async def begin_step(scene: Scene, course: Course) -> Outcome:
    partings = await scene.partings(course)
    seeder = course.facts(FIND).get("seeder", ())
    if len(seeder) != 2:
        raise MirrorError("the step before recorded no producer; give this up with --abandon")
    begun = await begin_lanes(scene, partings, (int(seeder[0]), int(seeder[1])))
    return Outcome(
        told=f"{counted(begun.lanes, 'lane')} of {scene.back} written, to go on at the parting; "
        f"{begun.identical} with the same offsets",
        facts={"lanes": begun.lanes, "identical": begun.identical},
    )


async def groups_step(scene: Scene, course: Course) -> Outcome:
    sides = scene.sides
    fresh: set[TopicName] = set()
    if scene.is_renaming:
        places = await find_places(sides.flow, sides.target, sides.hand.store, every())
        translate = _to_original(places, await _starts(sides.source, places))
        follows = group_filter(sides.flow).should_follow
    else:
        chosen = scene.treatments(await scene.partings(course))
        fresh = {topic for topic, what in chosen.items() if what in DELETING}
        whole = {topic for topic, what in chosen.items() if what is Treatment.WIPE}
        async with scene.back_ledger() as hand:
            found = await find_places(scene.back_flow, hand.target, hand.store, every())
            places = [place for place in found if place.lane.source.topic not in whole]
            translate = _to_old(places, await _starts(hand.target, places))
        follows = group_filter(scene.back_flow).should_follow
    moved = await asyncio.to_thread(
        move_groups_back,
        GroupAdmin(sides.target_config),
        GroupAdmin(sides.config.target_of(scene.back)),
        follows,
        translate,
        fresh=fresh,
    )
    return Outcome(
        told=moved.told,
        facts={
            "moved": list(moved.moved)[:1_000],
            "active": list(moved.active)[:1_000],
            "problems": dict(list(moved.problems.items())[:100]),
            "exact": moved.exact_partitions,
            "nearest": moved.nearest_partitions,
        },
    )


Starts = Mapping[TopicPartition, int]


async def _starts(old: Cluster, places: Iterable[LanePlace]) -> Starts:
    """First offsets of the old primary's partitions; those that are not there are left out."""
    partitions = {
        place.lane.source if place.lane.flow.source == old.alias else place.target
        for place in places
    }
    await old.refresh({partition.topic for partition in partitions})
    found = await old.list_offsets(partitions, EARLIEST)
    return {at: start for at, start in found.items() if isinstance(start, int)}


def _to_old(places: Iterable[LanePlace], starts: Starts) -> Translate:
    """By the ledger of the way back, whose source is the present primary."""
    by_partition = {place.lane.source: place for place in places}

    def translate(at: TopicPartition, offset: int) -> tuple[TopicPartition, Translated] | None:
        place = by_partition.get(at)
        if place is None or place.record.runs.contradicted_at is not None:
            return None
        return _safe(place, place.target, starts, to_target(place.record.runs, place.end, offset))

    return translate


def _to_original(places: Iterable[LanePlace], starts: Starts) -> Translate:
    """By the flow's own ledger: from the mirrored topic to the one it mirrors."""
    by_partition = {place.target: place for place in places}

    def translate(at: TopicPartition, offset: int) -> tuple[TopicPartition, Translated] | None:
        place = by_partition.get(at)
        if place is None or place.record.runs.contradicted_at is not None:
            return None
        found = to_source(place.record.runs, place.end, offset)
        return _safe(place, place.lane.source, starts, found)

    return translate


def _safe(
    place: LanePlace, old: TopicPartition, starts: Starts, found: Translated
) -> tuple[TopicPartition, Translated] | None:
    """None where the nearest place known would skip records that are there."""
    if old not in starts or (found.clamped == "before" and place.record.starts[0].adopted):
        return None
    if found.offset < starts[old]:
        # An offset before the log's start would send a consumer wherever auto.offset.reset says.
        return old, Translated(offset=starts[old], clamped="before")
    return old, found


async def open_step(scene: Scene, course: Course) -> Outcome:
    """One of the two flows may run; the other stays fenced until somebody fails over again."""
    flow, store = scene.sides.flow, scene.sides.hand.store
    if scene.is_renaming:
        primary, opened = flow.id.source, flow.id
        await store.write_or_refuse([lift()])
    else:
        primary, opened = flow.id.target, scene.back
        why = (
            f"{scene.back} carries its topics since the failback of {_utc(now_ms())}; "
            f"`heliograph failover --flow '{scene.back}' --planned` and then `heliograph failback "
            f"--flow '{scene.back}'` turn that round"
        )
        await store.write_or_refuse([put_up(Fence(at_ms=now_ms(), why=why))])
        async with scene.back_ledger() as hand:
            # It begins anew: what an earlier failover of it recorded is over.
            await Logbook(hand.store, "failover").forget()
            await Logbook(hand.store, "failback").forget()
            await hand.store.write_or_refuse([lift()])
    event = hook_event(
        scene.sides.config,
        flow.id,
        "after failback",
        primary=primary,
        detail={"course": course.id, "opened": str(opened)},
    )
    hooks = await asyncio.to_thread(run_hooks, flow.recovery, event)
    failed = [hook for hook in hooks if hook.is_in_the_way]
    if failed:
        raise RecoveryRefused(
            f"{hooks_told(failed)}; all before it is done: run this again to run them again"
        )
    return Outcome(told=f"{opened} may run", facts={"opened": str(opened)})


def _utc(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
