"""Lanes without history: where they begin, with filler before where offsets are preserved.

Runs on executors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import assert_never

from heliograph.broker.cluster import EARLIEST, LATEST, NO_OFFSET, Cluster
from heliograph.broker.seed import is_filler, seed
from heliograph.clock import now_ms
from heliograph.copy.flow import Flow
from heliograph.copy.found import Blocked, Found, L, Report, Resumable, SourceTrouble, report_found
from heliograph.errors import BrokerError, InvariantError, MirrorError
from heliograph.ledger.entries import StartEntry
from heliograph.ledger.locate import LogState
from heliograph.ledger.store import WRITE_S_MAX
from heliograph.model import (
    OffsetRange,
    Offsets,
    OnExisting,
    StallReason,
    Start,
    StartAt,
    StartBack,
    StartOffset,
    StartTime,
    TopicPartition,
)
from heliograph.probe import LANES_CREATED, LANES_TO_CREATE, probe

ResumePointOf = Callable[[L, LogState], Awaitable[Found]]
"""Where a lane whose start is in the ledger goes on."""


async def begin_lanes(
    flow: Flow,
    newborn: Mapping[L, LogState],
    resume_point: ResumePointOf[L],
    report: Report[L],
) -> None:
    """Write where each new lane starts, and report where it goes on.

    Two mirrors may do so at once: the first entry counts for both. A lane that needs filler first
    waits for its own only.
    """
    at_once: list[tuple[L, LogState, int]] = []
    async with asyncio.TaskGroup() as tasks:
        for lane, offset in (await _first_offsets(flow, newborn)).items():
            state = newborn[lane]
            if isinstance(offset, BrokerError):
                report(lane, SourceTrouble(error=offset))
                continue
            is_seeding = is_filler(state.last_sequence)
            occupied = state.end > state.start and not is_seeding
            if occupied and lane.spec.on_existing is OnExisting.REFUSE:
                report(lane, _target_not_empty(lane, state))
                continue
            is_early = state.end < offset and not occupied
            if is_seeding or (lane.spec.offsets is Offsets.PRESERVE and is_early):
                seeded = _seed_and_begin(flow, lane, state, offset, resume_point)
                tasks.create_task(report_found(lane, seeded, report))
            else:
                at_once.append((lane, state, offset))
        entries = [_start_entry(flow, lane, offset, state.end) for lane, state, offset in at_once]
        problem = await _written(flow, entries) if entries else None
        for lane, state, _ in at_once:
            if problem is not None:
                report(lane, problem)
            else:
                tasks.create_task(report_found(lane, resume_point(lane, state), report))


async def _first_offsets(flow: Flow, newborn: Mapping[L, LogState]) -> dict[L, int | BrokerError]:
    found: dict[L, int | BrokerError] = {}
    asked: dict[Start, list[L]] = {}
    for lane in newborn:
        start_at = lane.spec.start_at
        if isinstance(start_at, StartOffset):
            found[lane] = start_at.offset
        else:
            asked.setdefault(start_at, []).append(lane)
    for start_at, some in asked.items():
        offsets = await _offsets_at(flow.source, start_at, [lane.spec.id.source for lane in some])
        found.update({lane: offsets[lane.spec.id.source] for lane in some})
    return found


async def _offsets_at(
    source: Cluster, start: Start, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int | BrokerError]:
    match start:
        case StartAt.EARLIEST:
            return await source.list_offsets(partitions, EARLIEST)
        case StartAt.LATEST:
            return await source.list_offsets(partitions, LATEST)
        case StartTime(at_ms=at_ms):
            wanted_ms = at_ms
        case StartBack(back_ms=back_ms):
            wanted_ms = max(0, now_ms() - back_ms)
        case _:
            assert_never(start)
    # The end is asked for first: a record that arrives between the two answers is of that time,
    # and an end that already counts it would skip it.
    ends = await source.list_offsets(partitions, LATEST)
    found = await source.list_offsets(partitions, wanted_ms)
    return {at: ends[at] if offset == NO_OFFSET else offset for at, offset in found.items()}


def _target_not_empty(lane: Resumable, state: LogState) -> Blocked:
    return Blocked(
        reason=StallReason.TARGET_NOT_EMPTY,
        detail=f"{lane.spec.target} holds {state.end - state.start} records "
        "this flow did not write, and on.existing = refuse",
    )


async def _written(flow: Flow, entries: Sequence[StartEntry]) -> MirrorError | None:
    """Why the lanes could not begin, if so; otherwise the view has what counts of them."""
    probe(LANES_TO_CREATE)
    try:
        await flow.ledger.write_or_refuse(entries, WRITE_S_MAX)
        probe(LANES_CREATED)
        await flow.ledger.catch_up()
    except MirrorError as exc:
        return exc
    return None


async def _seed_and_begin(
    flow: Flow, lane: L, state: LogState, offset: int, resume_point: ResumePointOf[L]
) -> Found:
    async with flow.long_reads:
        state = await _seeded(flow, lane, state, offset)
    problem = await _written(flow, [_start_entry(flow, lane, offset, state.end)])
    return problem or await resume_point(lane, state)


async def _seeded(flow: Flow, lane: Resumable, partition: LogState, offset: int) -> LogState:
    if flow.stamp is None:
        raise InvariantError(f"{flow.id}: seeded a log without a producer")
    end = await seed(
        flow.target,
        lane.spec.target,
        flow.stamp,
        log=OffsetRange(start=partition.start, end=partition.end),
        last_sequence=partition.last_sequence,
        wanted=offset,
    )
    return LogState(start=end, end=end, last_sequence=-1)


def _start_entry(flow: Flow, lane: Resumable, source_offset: int, target_offset: int) -> StartEntry:
    target_topic = flow.target.topic(lane.spec.target.topic)
    return StartEntry(
        topic=lane.spec.id.source.topic,
        partition=lane.spec.id.source.partition,
        position=0,
        author=flow.ledger.author,
        source_offset=source_offset,
        target_offset=target_offset,
        source_topic_id=lane.spec.source_topic_id,
        target_topic_id=target_topic.id if target_topic else None,
        at_ms=now_ms(),
        # The driver knows such an offset from who copied all before it.
        adopted=isinstance(lane.spec.start_at, StartOffset),
    )
