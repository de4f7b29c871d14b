"""Write what `adopt` found into the ledger, so that a run goes on exactly there. Driver only.

A lane's entries are written as one batch, which the log has whole or not at all: its start, where
the comparison began; its runs; and its head, where the next record goes. The flow's producer is new
on the target, so a resume finds nothing of it in the log and goes by the head.

A lane that Heliograph carried before it was handed to MirrorMaker 2 keeps its positions and gets
the records since as runs. The broker still knows the producer's last sequence there, which no
longer is the lane's position, so the flow gets another producer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from heliograph.clock import now_ms
from heliograph.config.schema import MirrorConfig
from heliograph.errors import InvariantError, MirrorError
from heliograph.ledger.access import OpenLedger, lease_ledger
from heliograph.ledger.entries import (
    ADOPTED,
    RUNS_PER_ENTRY_MAX,
    Entry,
    FlowEntry,
    HeadEntry,
    StartEntry,
    new_author,
    runs_entries,
)
from heliograph.ledger.entry_codec import encode
from heliograph.ledger.heads import settled_head
from heliograph.ledger.locations import LaneLocation, all_topics, locate_lanes
from heliograph.ledger.mark import new_flow_producer, renewed
from heliograph.ledger.runs import Run
from heliograph.model import FlowId
from heliograph.takeover.verdict import LaneFinding, Verdict

_BATCH_BYTES_MAX: Final = 400_000
"""Less than the store puts into one batch."""


async def write_adoption(
    config: MirrorConfig,
    flow: FlowId,
    findings: Sequence[LaneFinding],
    source_cluster_id: str | None,
) -> int:
    """How many lanes were written; raises `MirrorError`, then any part may have been."""
    wanted = [each for each in findings if each.verdict is Verdict.ADOPT]
    if not wanted:
        return 0
    author = new_author()
    async with lease_ledger(config, flow) as ledger:
        await ledger.store.catch_up()
        _require_as_found(ledger, wanted)
        if any(each.resumed_position is not None for each in wanted):
            adopted = {each.lane for each in wanted}
            locations = await locate_lanes(
                config.flow(flow), ledger.target, ledger.store, all_topics()
            )
            await _renew_producer(
                ledger,
                [location for location in locations if location.lane not in adopted],
                wanted,
                author,
            )
            return len(wanted)
        await _open(ledger, flow, source_cluster_id)
        for entries in _batches(lane_entries(each, author) for each in wanted):
            await ledger.store.write(entries)
        await ledger.store.catch_up()
        _require_first(ledger, wanted, author)
    return len(wanted)


def _require_as_found(ledger: OpenLedger, wanted: Iterable[LaneFinding]) -> None:
    """Another adoption may have been quicker than the one who answered `y`."""
    for each in wanted:
        source = each.lane.source
        record = ledger.store.view.lane(source.topic, source.partition)
        has_begun = record is not None and bool(record.starts)
        if has_begun != (each.resumed_position is not None):
            raise MirrorError(
                f"{each.lane}: the ledger changed since the comparison; rerun this command"
            )


async def _open(ledger: OpenLedger, flow: FlowId, source_cluster_id: str | None) -> None:
    if ledger.store.view.flow is None:
        producer_id, epoch = await new_flow_producer(ledger.target, flow)
        entry = FlowEntry(
            flow=flow,
            producer_id=producer_id,
            producer_epoch=epoch,
            source_cluster_id=source_cluster_id or "",
            created_ms=now_ms(),
        )
        await ledger.store.write([entry])


async def _renew_producer(
    ledger: OpenLedger, others: Sequence[LaneLocation], wanted: Sequence[LaneFinding], author: str
) -> None:
    """Every lane must find its place by its head, for the new producer is in no log."""
    for entries in _batches([settled_head(location, location.record.head)] for location in others):
        await ledger.store.write(entries)
    for entries in _batches(lane_entries(each, author) for each in wanted):
        await ledger.store.write(entries)
    old = ledger.store.view.flow
    if old is None:
        raise InvariantError("a ledger with lanes names no producer")
    producer_id, epoch = await new_flow_producer(ledger.target, old.flow)
    new = replace(old, producer_id=producer_id, producer_epoch=epoch, created_ms=now_ms())
    await ledger.store.write(renewed(ledger.store.view, new))


def lane_entries(found: LaneFinding, author: str) -> list[Entry]:
    """Start, runs and head of a lane; only runs and head where it has started before."""
    if found.next_source_offset is None or found.target_next_offset is None:
        raise InvariantError(f"{found.lane}: adopted without a place to go on at")
    base = found.resumed_position or 0
    end = Run(
        position=found.mapped_records,
        source_offset=found.next_source_offset,
        target_offset=found.target_next_offset,
    )
    runs = list(found.runs)
    if not runs or runs[-1].at(end.position) != end:
        runs.append(end)
    if found.resumed_position is None:
        # Older ones translate a little more, but all of a new lane has to fit one batch.
        runs = runs[-RUNS_PER_ENTRY_MAX:]
    first = runs[0].position
    shifted = tuple(run._replace(position=base + run.position - first) for run in runs)
    source, at_ms = found.lane.source, now_ms()
    head = HeadEntry(
        topic=source.topic,
        partition=source.partition,
        position=base + end.position - first,
        source_next_offset=end.source_offset,
        source_end_offset=max(found.source_end_offset, end.source_offset),
        target_next_offset=end.target_offset,
        source_topic_id=found.source_topic_id,
        target_topic_id=found.target_topic_id,
        at_ms=at_ms,
        state=ADOPTED,
        detail="taken over from MirrorMaker 2",
    )
    explained: list[Entry] = [
        *runs_entries(source.topic, source.partition, shifted, author=author, end_position=None),
        head,
    ]
    if found.resumed_position is not None:
        return explained
    start = StartEntry(
        topic=source.topic,
        partition=source.partition,
        position=0,
        author=author,
        source_offset=shifted[0].source_offset,
        target_offset=shifted[0].target_offset,
        source_topic_id=found.source_topic_id,
        target_topic_id=found.target_topic_id,
        at_ms=at_ms,
        adopted=True,
    )
    return [start, *explained]


def _batches(lanes: Iterable[Sequence[Entry]]) -> Iterator[list[Entry]]:
    """Entries of many lanes, each lane whole, small enough for one batch."""
    batch: list[Entry] = []
    size_bytes = 0
    for entries in lanes:
        lane_bytes = sum(len(key) + len(value) + 64 for key, value in map(encode, entries))
        if batch and size_bytes + lane_bytes > _BATCH_BYTES_MAX:
            yield batch
            batch, size_bytes = [], 0
        batch.extend(entries)
        size_bytes += lane_bytes
    if batch:
        yield batch


def _require_first(ledger: OpenLedger, wanted: Iterable[LaneFinding], author: str) -> None:
    for each in wanted:
        source = each.lane.source
        record = ledger.store.view.begun_lane(source.topic, source.partition)
        if record is None or record.starts[0].author != author:
            raise MirrorError(
                f"{each.lane}: another driver started the lane meanwhile; rerun this command"
            )
