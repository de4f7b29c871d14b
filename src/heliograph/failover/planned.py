"""The steps only a planned failover has: producers stop, lanes drain, the tail is audited.

Driver only. Until the fence is up nothing has been changed, so each of these may fail, be waited
out or be given up without a trace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

from heliograph.audit.compare import compare_unit
from heliograph.audit.findings import FindingKind, UnitResult
from heliograph.audit.plan import lane_writers, tail_units
from heliograph.audit.units import AuditUnit
from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.cluster import EARLIEST, LATEST, Cluster
from heliograph.clock import monotonic_s
from heliograph.copy.flow import producers_of_mirrors
from heliograph.errors import RecoveryRefused
from heliograph.failover.context import FailoverContext
from heliograph.failover.ends_watch import EndsWatch, topics_of
from heliograph.failover.outputs import DRAIN, FailoverChoices, StopProducersOutput, VerifyOutput
from heliograph.failover.source_ends import (
    high_watermarks,
    look_at_source,
    source_cluster,
    without_heartbeats,
)
from heliograph.failover.steps import hooks_of, some_of
from heliograph.ledger.holder import HolderWatch, is_gone
from heliograph.ledger.locations import LaneLocation, locate_lanes
from heliograph.model import TopicPartition
from heliograph.procedure.hooks import hooks_told
from heliograph.procedure.journal import NoOutput, Procedure
from heliograph.procedure.runner import Outcome
from heliograph.topics.naming import is_heartbeats, naming_policy
from heliograph.topics.selection import select_topics
from heliograph.words import counted

STOP_S_MAX: Final = 30.0
"""How long producers get to stop."""
STUCK_S_MAX: Final = 60.0
"""A lag that did not shrink for so long is not going to."""
TAIL_RECORDS: Final = 1_000
"""Of each lane; everything before was there when the last audit looked."""
_LOOK_S: Final = 0.5
_SOURCE_S_MAX: Final = 10.0
_UNITS_AT_ONCE: Final = 8


async def stop_producers_step(
    context: FailoverContext, procedure: Procedure[FailoverChoices]
) -> Outcome[StopProducersOutput]:
    """The operator's hook stops producers, or the operator has; either way the ends must rest."""
    hook = await _before_hook(context, procedure)
    partitions = await _partitions(context)
    async with source_cluster(context.config, context.flow) as source:
        watch = EndsWatch(await _ends(source, partitions))
        deadline_s = monotonic_s() + STOP_S_MAX
        while not watch.is_still:
            if monotonic_s() > deadline_s:
                raise RecoveryRefused(watch.sentence(context.flow.id.source, STOP_S_MAX))
            await asyncio.sleep(_LOOK_S)
            watch.see(await _ends(source, partitions))
    summary = f"{counted(len(partitions), 'partition')} of {context.flow.id.source} stand still"
    return Outcome(
        summary=f"{hook}; {summary}" if hook else summary,
        output=StopProducersOutput(partitions=len(partitions)),
    )


async def drain_step(
    context: FailoverContext, procedure: Procedure[FailoverChoices]
) -> Outcome[NoOutput]:
    """Until nothing waits on the source that the flow would mirror."""
    least, since_s, watch = None, monotonic_s(), HolderWatch()
    while True:
        waiting = await _waiting(context)
        if waiting.records == 0:
            return Outcome(
                summary=f"{counted(waiting.lanes, 'lane')} with lag 0", output=NoOutput()
            )
        if least is None or waiting.records < least:
            least, since_s = waiting.records, monotonic_s()
            context.tell(DRAIN, f"{waiting.records:,} records wait")
        holder = context.ledger.store.view.holder
        if holder is not None:
            watch.see(holder)
        if holder is None or is_gone(holder) or watch.expired == holder:
            raise RecoveryRefused(
                f"{waiting.records:,} records wait in {some_of(waiting.topics)} and no driver "
                f"mirrors {context.flow.id}: start `heliograph run`, then do this again"
            )
        if monotonic_s() - since_s > STUCK_S_MAX:
            raise RecoveryRefused(
                f"{waiting.records:,} records wait in {some_of(waiting.topics)} and have not "
                f"become fewer for {STUCK_S_MAX:.0f} s: `heliograph status` shows why"
            )
        await asyncio.sleep(_LOOK_S)


async def verify_step(
    context: FailoverContext, procedure: Procedure[FailoverChoices]
) -> Outcome[VerifyOutput]:
    """The last records of every lane are equal on both sides, by content."""
    locations = await locate_lanes(
        context.flow, context.ledger.target, context.ledger.store, context.wanted
    )
    units = tail_units(
        without_heartbeats(context.flow, locations),
        TAIL_RECORDS,
        read_committed=context.flow.read_committed,
    )
    turns = asyncio.Semaphore(_UNITS_AT_ONCE)
    view = context.ledger.store.view
    of_lane = {location.lane: location for location in locations}
    async with source_cluster(context.config, context.flow) as source:
        brought = await producers_of_mirrors(context.config, context.flow.id, source)
        await source.refresh({unit.lane.source.topic for unit in units})

        async def compared(unit: AuditUnit) -> UnitResult:
            writers = lane_writers(view, of_lane[unit.lane], source, brought)
            async with turns:
                return await compare_unit(
                    source, context.ledger.target, replace(unit, writers=writers)
                )

        results = await asyncio.gather(*map(compared, units))
    wrong = [
        f"{result.lane.source}: {finding.records:,} {finding.kind.value}"
        for result in results
        for finding in result.findings
        # What others wrote to the target is theirs, and no reason to stay.
        if finding.kind is not FindingKind.FOREIGN
    ]
    if wrong:
        raise RecoveryRefused(
            f"the tail differs, so nothing was failed over: {some_of(wrong)}; `heliograph audit` "
            "names every range"
        )
    records = sum(result.records for result in results)
    return Outcome(
        summary=f"the last {counted(records, 'record')} of {counted(len(units), 'lane')} are equal",
        output=VerifyOutput(records=records),
    )


async def _before_hook(context: FailoverContext, procedure: Procedure[FailoverChoices]) -> str:
    outcomes = await hooks_of(context, procedure, "before failover")
    if any(hook.is_in_the_way for hook in outcomes):
        raise RecoveryRefused(f"{hooks_told(outcomes)}; nothing was changed")
    return hooks_told(outcomes)


async def _partitions(context: FailoverContext) -> frozenset[TopicPartition]:
    """Every partition of the source that the flow mirrors or is about to, but heartbeats."""
    admin = ClusterAdmin(context.config.source_of(context.flow.id), timeout_s=_SOURCE_S_MAX)
    view = await asyncio.to_thread(admin.describe)
    policy, wanted = naming_policy(context.flow), context.wanted
    return frozenset(
        TopicPartition(topic=topic, partition=partition.partition)
        for topic, _ in select_topics(context.flow, view.topics).mirrored
        if not is_heartbeats(policy, topic) and wanted(topic)
        for partition in view.topics[topic].partitions
    )


async def _ends(
    source: Cluster, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """High watermark and, asked for later, last stable offset: less while a transaction is open."""
    ends = await high_watermarks(source, partitions)
    stable = await source.list_offsets(partitions, LATEST, read_committed=True)
    found: dict[TopicPartition, tuple[int, int]] = {}
    for at, end in ends.items():
        last = stable.get(at)
        found[at] = (end, last if isinstance(last, int) else -1)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    records: int
    topics: tuple[str, ...]
    lanes: int


async def _waiting(context: FailoverContext) -> _Waiting:
    flow = context.flow
    locations = without_heartbeats(
        flow,
        await locate_lanes(flow, context.ledger.target, context.ledger.store, context.wanted),
    )
    seen = await look_at_source(context.config, flow, locations, wait_s=_SOURCE_S_MAX)
    if seen.problem:
        raise RecoveryRefused(
            f"{seen.problem}; a source that is gone for good needs --abandon, then a failover "
            "without --planned"
        )
    lag: dict[TopicPartition, int] = await _unborn(context, locations)
    for location in locations:
        at = location.lane.source
        first = seen.waiting.get(at)
        lag[at] = 0 if first is None else max(0, seen.ends[at] - first.offset)
    topics = sorted(topics_of(at for at, records in lag.items() if records))
    return _Waiting(records=sum(lag.values()), topics=tuple(topics), lanes=len(locations))


async def _unborn(
    context: FailoverContext, locations: Iterable[LaneLocation]
) -> dict[TopicPartition, int]:
    """Records in partitions that the flow mirrors and that have no lane yet."""
    missing = await _partitions(context) - {location.lane.source for location in locations}
    if not missing:
        return {}
    async with source_cluster(context.config, context.flow) as source:
        ends = await high_watermarks(source, missing)
        starts = await source.list_offsets(missing, EARLIEST)
    return {
        at: max(0, end - start)
        for at, end in ends.items()
        if isinstance(start := starts.get(at), int)
    }
