"""The steps of a failback, each safe to repeat. Driver only.

Until the last one neither flow runs: the one that was failed over is fenced since, the way back is
fenced by the first step. Nothing is deleted before everything that only the old primary has is
saved and counted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.admin import Outcome as AdminOutcome
from heliograph.broker.cluster import EARLIEST, LATEST, Cluster
from heliograph.broker.groups import GroupAdmin
from heliograph.broker.topic_changes import TopicToCreate
from heliograph.clock import monotonic_s, now_ms
from heliograph.errors import BrokerError, BrokerUnreachable, MirrorError, RecoveryRefused
from heliograph.failback.context import FailbackContext
from heliograph.failback.divergence import (
    DELETING,
    Resolution,
    TopicDivergence,
    in_partition,
    recorded,
)
from heliograph.failback.export import (
    ExportTo,
    Unmirrored,
    end_of_topic,
    ensure_topic,
    export_records,
)
from heliograph.failback.find import find_divergences
from heliograph.failback.groups import Translate, move_groups_back
from heliograph.failback.lane import brought_to, known, with_mirrors
from heliograph.failback.outputs import (
    CHECK,
    EXPORT,
    FIND,
    FIND_PARTS,
    BeginOutput,
    ClearOutput,
    ExportOutput,
    FailbackChoices,
    FindOutput,
    GroupsOutput,
    OpenOutput,
)
from heliograph.failback.reverse_ledger import begin_lanes
from heliograph.failover.quiesce import wait_no_leader
from heliograph.ledger.both_ways import earlier_of
from heliograph.ledger.entries import Tombstone
from heliograph.ledger.fence import (
    Fence,
    fence_entry,
    fence_of,
    topic_fences,
    topic_unfence_entries,
    unfence_entry,
)
from heliograph.ledger.locate import is_other_topic
from heliograph.ledger.locations import LaneLocation, all_topics, locate_lanes
from heliograph.ledger.outage_note import forget_outages
from heliograph.ledger.runs import Runs
from heliograph.ledger.translate import Clamped, Translated, Translation, Unsafe
from heliograph.model import OffsetRange, TopicName, TopicPartition
from heliograph.procedure.hooks import hook_event, hooks_told, run_hooks
from heliograph.procedure.journal import NoOutput, Procedure, forget_procedures
from heliograph.procedure.runner import Outcome
from heliograph.topics.filters import group_filter
from heliograph.words import counted

_RECREATE_S_MAX: Final = 60.0
_LOOK_S: Final = 0.2
_GROUPS_RECORDED_MAX: Final = 1_000
_PROBLEMS_RECORDED_MAX: Final = 100


async def check_step(context: FailbackContext, _: Procedure[FailbackChoices]) -> Outcome[NoOutput]:
    """Both clusters answer, and no driver carries the way back until it is open."""
    pair = context.pair
    for cluster in (pair.source_config, pair.target_config):
        await asyncio.to_thread(ClusterAdmin(cluster).topic_names)
    if context.is_renaming:
        return Outcome(
            summary=f"both clusters answer; only {pair.flow.id} writes its topics on "
            f"{pair.flow.id.target}, so they cannot diverge",
            output=NoOutput(),
        )
    async with context.back_ledger() as ledger:
        if fence_of(ledger.store.view) is None:
            why = f"a failback of {pair.flow.id} is under way; it opens this flow when it is done"
            await ledger.store.write_or_refuse([fence_entry(Fence(at_ms=now_ms(), why=why))])
        stood = await wait_no_leader(ledger, context.back, lambda text: context.tell(CHECK, text))
    return Outcome(
        summary=f"both clusters answer; {context.back} is fenced ({stood})", output=NoOutput()
    )


async def find_step(
    context: FailbackContext, procedure: Procedure[FailbackChoices]
) -> Outcome[FindOutput]:
    divergences = context.looked.divergences or await find_divergences(context.pair)
    for each in divergences:
        await context.journal.record_part(procedure, FIND_PARTS, each.topic, recorded(each))
    pair = context.pair
    first_offset = await asyncio.to_thread(end_of_topic, pair.target_config, context.order.topic)
    async with context.back_ledger() as ledger:
        # As the producer that will write there, not as the consumer that reads: see permissions.
        seeder = await ledger.target.new_producer_id()
    diverged = [each for each in divergences if each.has_diverged]
    unmirrored = sum(each.unmirrored_records for each in diverged)
    summary = f"{counted(len(divergences), 'topic')}, none diverged"
    if diverged:
        summary = (
            f"{len(diverged)} of {counted(len(divergences), 'topic')} diverged: "
            f"{counted(unmirrored, 'record')} on {pair.flow.id.source} never mirrored"
        )
    return Outcome(summary=summary, output=FindOutput(export_from=first_offset, seeder=seeder))


async def export_step(
    context: FailbackContext, procedure: Procedure[FailbackChoices]
) -> Outcome[ExportOutput]:
    """Everything that only the old primary has, before anything there is touched."""
    divergences = await context.divergences(procedure)
    pair, topic = context.pair, context.order.topic
    unmirrored = list(_unmirrored(divergences))
    if not unmirrored:
        return Outcome(summary="there is nothing to save", output=ExportOutput(records=0))
    # Of one that goes on here, no step before this one has asked for the topics.
    await pair.source.refresh({each.partition.topic for each in unmirrored})
    pair = await with_mirrors(pair)
    wanted = [
        replace(each, brought=await brought_to(pair, each.partition, each.offsets))
        for each in unmirrored
    ]
    await asyncio.to_thread(
        ensure_topic,
        pair.target_config,
        topic,
        replication_factor=pair.flow.replication_factor,
        message_bytes_max=max(
            int(each.configs.get("max.message.bytes", 0)) for each in divergences
        ),
    )
    found = procedure.output(FIND)
    to = ExportTo(
        topic=topic,
        folder=context.order.export_dir.absolute(),
        procedure=procedure.id,
        first_offset=found.export_from if found is not None else 0,
    )
    exported = await asyncio.to_thread(
        export_records,
        pair.source_config,
        pair.target_config,
        wanted,
        to,
        read_committed=pair.flow.read_committed,
        tell=lambda text: context.tell(EXPORT, text),
    )
    folder = to.folder / procedure.id
    return Outcome(
        summary=f"{counted(exported.records, 'record')} saved in topic {topic} on "
        f"{pair.flow.id.target} and in {counted(len(exported.files), 'file')} in {folder}",
        output=ExportOutput(
            records=exported.records,
            topic=topic,
            directory=str(folder),
            files=len(exported.files),
        ),
    )


def _unmirrored(divergences: Iterable[TopicDivergence]) -> Iterable[Unmirrored]:
    for topic in divergences:
        for each in topic.partitions:
            if each.unmirrored_records and each.source_end is not None:
                start = max(each.source_offset, each.source_start or 0)
                yield Unmirrored(
                    partition=in_partition(topic, each),
                    offsets=OffsetRange(start=start, end=each.source_end),
                    records=each.unmirrored_records,
                )


# -- topics that are deleted and created again


async def clear_step(
    context: FailbackContext, procedure: Procedure[FailbackChoices]
) -> Outcome[ClearOutput]:
    divergences = await context.divergences(procedure)
    chosen = context.resolutions(divergences)
    wanted = [each for each in divergences if chosen[each.topic] in DELETING]
    if not wanted:
        return Outcome(summary="nothing is deleted", output=ClearOutput(topics=0))
    if not context.order.may_delete:
        raise RecoveryRefused(
            f"{counted(len(wanted), 'topic')} on {context.order.flow.source} would be deleted; "
            "say --yes"
        )
    await _require_unmoved(context, wanted)
    admin = ClusterAdmin(context.pair.config.target_of(context.back))
    await asyncio.to_thread(_recreate, admin, wanted)
    records = sum(each.source_records for each in wanted)
    return Outcome(
        summary=f"{counted(len(wanted), 'topic')} with {counted(records, 'offset')} deleted on "
        f"{context.order.flow.source} and created again, empty",
        output=ClearOutput(topics=len(wanted), offsets=records),
    )


async def _require_unmoved(context: FailbackContext, topics: Sequence[TopicDivergence]) -> None:
    """Whoever still writes to the old primary would lose what is not saved."""
    source = context.pair.source
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
                    f"{in_partition(topic, each)} on {source.alias} is still written to: it ended "
                    f"at {each.source_end} when its records were saved and ends at {end} now; stop "
                    "its producers, abandon this failback with --abandon and start it again"
                )


def _recreate(admin: ClusterAdmin, topics: Sequence[TopicDivergence]) -> None:
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


def _creation(topic: TopicDivergence) -> TopicToCreate:
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


async def begin_step(
    context: FailbackContext, procedure: Procedure[FailbackChoices]
) -> Outcome[BeginOutput]:
    divergences = await context.divergences(procedure)
    found = procedure.output(FIND)
    if found is None or found.seeder is None:
        raise MirrorError(
            f"step {FIND.name} recorded no producer; abandon this failback with --abandon"
        )
    begun = await begin_lanes(context, divergences, found.seeder)
    return Outcome(
        summary=f"{counted(begun.lanes, 'lane')} of {context.back} written, to continue at the "
        f"divergence point; {begun.identical} with the same offsets",
        output=BeginOutput(lanes=begun.lanes, identical=begun.identical),
    )


async def groups_step(
    context: FailbackContext, procedure: Procedure[FailbackChoices]
) -> Outcome[GroupsOutput]:
    pair = context.pair
    fresh: set[TopicName] = set()
    if context.is_renaming:
        wanted = all_topics(context.order.topics or ())
        locations = await locate_lanes(pair.flow, pair.target, pair.ledger.store, wanted)
        translate = _to_original(locations, await _starts(pair.source, locations))
        follows = group_filter(pair.flow).should_follow
    else:
        chosen = context.resolutions(await context.divergences(procedure))
        fresh = {topic for topic, what in chosen.items() if what in DELETING}
        whole = {topic for topic, what in chosen.items() if what is Resolution.WIPE}
        async with context.back_ledger() as ledger:
            found = await locate_lanes(context.back_flow, ledger.target, ledger.store, all_topics())
            locations = [location for location in found if location.lane.source.topic not in whole]
            translate = _to_old(locations, await _starts(ledger.target, locations))
            if pair.config.way_back(context.back) is not None:
                there = await locate_lanes(pair.flow, pair.target, pair.ledger.store, all_topics())
                translate = _both_ways(translate, locations, there, fresh)
        follows = group_filter(context.back_flow).should_follow
    moved = await asyncio.to_thread(
        move_groups_back,
        GroupAdmin(pair.target_config),
        GroupAdmin(pair.config.target_of(context.back)),
        follows,
        translate,
        fresh=fresh,
    )
    return Outcome(
        summary=moved.told,
        output=GroupsOutput(
            moved=moved.moved[:_GROUPS_RECORDED_MAX],
            active=moved.active[:_GROUPS_RECORDED_MAX],
            problems=dict(islice(moved.problems.items(), _PROBLEMS_RECORDED_MAX)),
            exact=moved.exact_partitions,
            nearest=moved.nearest_partitions,
        ),
    )


Starts = Mapping[TopicPartition, int]


async def _starts(old: Cluster, locations: Iterable[LaneLocation]) -> Starts:
    """First offsets of the old primary's partitions; those that are not there are left out."""
    partitions = {
        location.lane.source if location.lane.flow.source == old.alias else location.target
        for location in locations
    }
    await old.refresh({partition.topic for partition in partitions})
    found = await old.list_offsets(partitions, EARLIEST)
    return {at: start for at, start in found.items() if isinstance(start, int)}


def _to_old(locations: Iterable[LaneLocation], starts: Starts) -> Translate:
    """By the ledger of the way back, whose source is the present primary."""
    maps = {location.lane.source: (location.target, location.offset_map) for location in locations}

    def translate(at: TopicPartition, offset: int) -> tuple[TopicPartition, Translated] | None:
        if at not in maps:
            return None
        old, offsets = maps[at]
        return _within(old, starts, offsets.to_target(offset))

    return translate


def _both_ways(
    translate: Translate,
    locations: Iterable[LaneLocation],
    there: Iterable[LaneLocation],
    fresh: Collection[TopicName],
) -> Translate:
    """Not behind a record that was written on the old primary and that the group has not read
    (`ledger.both_ways`); `there` are the lanes that brought those to the present one.

    Of a topic that is a new one on the old primary they say nothing.
    """
    brought = {location.lane.source: location for location in there}
    runs: dict[TopicPartition, Runs] = {}
    for location in locations:
        at, begun = location.lane.source, location.record.starts[-1]
        if at in brought and at.topic not in fresh:
            known = brought[at].record.starts[-1].source_topic_id
            if not is_other_topic(known, begun.target_topic_id):
                runs[at] = location.record.runs

    def earlier(at: TopicPartition, offset: int) -> tuple[TopicPartition, Translated] | None:
        found = translate(at, offset)
        unread = brought[at].offset_map.to_source(offset) if at in runs else None
        if found is None or unread is None or isinstance(unread, Unsafe):
            return found
        old, place = found
        return old, replace(place, offset=earlier_of(runs[at], place.offset, unread.offset))

    return earlier


def _to_original(locations: Iterable[LaneLocation], starts: Starts) -> Translate:
    """By the flow's own ledger: from the mirrored topic to the one it mirrors."""
    maps = {location.target: (location.lane.source, location.offset_map) for location in locations}

    def translate(at: TopicPartition, offset: int) -> tuple[TopicPartition, Translated] | None:
        if at not in maps:
            return None
        original, offsets = maps[at]
        return _within(original, starts, offsets.to_source(offset))

    return translate


def _within(
    old: TopicPartition, starts: Starts, found: Translation
) -> tuple[TopicPartition, Translated] | None:
    """None where no offset is safe; never one before the log's start.

    Such an offset would send a consumer wherever its auto.offset.reset says.
    """
    if old not in starts or isinstance(found, Unsafe):
        return None
    if found.offset < starts[old]:
        return old, Clamped(offset=starts[old], side=found.side or "before")
    return old, found


async def open_step(
    context: FailbackContext, procedure: Procedure[FailbackChoices]
) -> Outcome[OpenOutput]:
    """One of the two flows may run; the other stays fenced until the next failover."""
    flow, store = context.pair.flow, context.pair.ledger.store
    if context.is_renaming:
        primary, opened = flow.id.source, flow.id
        await store.write_or_refuse(_lifted(context))
    else:
        primary, opened = flow.id.target, context.back
        why = (
            f"{context.back} carries its topics since the failback of {_utc(now_ms())}; "
            f"`heliograph failover --flow '{context.back}' --planned` and then "
            f"`heliograph failback --flow '{context.back}'` reverse it"
        )
        # Topics that were failed over alone are among those that came back with the flow.
        fences = topic_unfence_entries(topic_fences(store.view))
        await store.write_or_refuse([fence_entry(Fence(at_ms=now_ms(), why=why)), *fences])
        async with context.back_ledger() as ledger:
            # It begins anew: what an earlier failover of it recorded is over.
            await forget_procedures(ledger.store, "failover")
            await forget_procedures(ledger.store, "failback")
            fences = topic_unfence_entries(topic_fences(ledger.store.view))
            await ledger.store.write_or_refuse([unfence_entry(), forget_outages(), *fences])
    event = hook_event(
        context.pair.config,
        flow.id,
        "after failback",
        primary=primary,
        detail={
            "course": procedure.id,
            "opened": str(opened),
            **({} if context.order.topics is None else {"topics": list(context.order.topics)}),
        },
    )
    hooks = await asyncio.to_thread(run_hooks, flow.recovery, event)
    failed = [hook for hook in hooks if hook.is_in_the_way]
    if failed:
        raise RecoveryRefused(
            f"{hooks_told(failed)}; all other steps are done: run this command again to run the "
            "hooks again"
        )
    topics = context.order.topics
    what = str(opened) if topics is None else f"{', '.join(topics)} of {opened}"
    return Outcome(summary=f"{what} may run", output=OpenOutput(opened=str(opened)))


def _lifted(context: FailbackContext) -> list[Tombstone]:
    """Of the topics that were asked for; of the whole flow also those of single topics."""
    fenced = topic_fences(context.pair.ledger.store.view)
    if context.order.topics is not None:
        return topic_unfence_entries(fenced.keys() & set(context.order.topics))
    # What it missed meanwhile was written on the other side: that is no outage.
    return [unfence_entry(), forget_outages(), *topic_unfence_entries(fenced)]


def _utc(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
