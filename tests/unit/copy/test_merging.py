"""A slot merges what its lanes wrote: few entries, the same map, nothing that is not settled."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast
from unittest.mock import patch

from heliograph.copy.flow import Flow
from heliograph.copy.lane import CarriedLane
from heliograph.copy.merging import is_merge_due, merge_runs
from heliograph.errors import NotAuthorised
from heliograph.ledger import segments
from heliograph.ledger.entries import Entry, RunsEntry, RunsKey, Tombstone
from heliograph.ledger.packed_runs import PackedRuns
from heliograph.ledger.runs import Run
from heliograph.ledger.store import LedgerStore
from heliograph.ledger.translate import Clamped, Exact, LaneEnd, OffsetMap
from heliograph.ledger.view import LedgerView
from heliograph.model import TopicName
from tests.kit.entries import head_entry, start_entry
from tests.kit.fake_cluster import FakeCluster
from tests.unit.copy.kit import carried_lane, running_at

NAME = TopicName("heliograph-ledger.A.internal")


def chunk_entry(lane: CarriedLane, number: int) -> RunsEntry:
    """Ten records of which the first skips one source offset."""
    source = lane.spec.id.source
    first = Run(position=10 * number, source_offset=11 * number, target_offset=10 * number)
    return RunsEntry(
        topic=source.topic,
        partition=source.partition,
        author="a" * 32,
        runs=(first,),
        end_position=10 * (number + 1),
    )


def on_lane(
    chunks: int, head: int, *, runs_max: int = 10_000_000, logs_begin: int = 0
) -> tuple[CarriedLane, LedgerView]:
    """A lane with so many chunks in its ledger is merged by its slot, and read by another."""
    lane = carried_lane()
    lane.enter(running_at(lane))
    lane.source_seen.start_offset, lane.source_seen.end_offset = logs_begin, 10 * logs_begin

    async def run() -> LedgerView:
        cluster = FakeCluster()
        cluster.create(NAME)
        cluster.create(lane.spec.target.topic).start = logs_begin
        store = LedgerStore(cluster, NAME)
        source = lane.spec.id.source
        entries: list[Entry] = [start_entry(source.topic, source.partition)]
        entries += [chunk_entry(lane, number) for number in range(chunks)]
        entries.append(head_entry(source.topic, source.partition, records=head))
        await store.write(entries)
        lane.unmerged_entries = chunks
        flow = cast(Any, lane.flow)
        flow.ledger, flow.target = store, cluster
        flow.limits = replace(flow.limits, ledger_runs_max=runs_max)
        await cluster.refresh([NAME, lane.spec.target.topic])
        await merge_runs(cast(Flow, flow), [lane])
        reader = LedgerStore(cluster, NAME)
        await reader.catch_up()
        await store.close()
        return reader.view

    return lane, asyncio.run(run())


def written(lane: CarriedLane, view: LedgerView) -> list[int]:
    """Runs of each entry, by position."""
    source = lane.spec.id.source
    fold = view.fold(source.topic, source.partition)
    assert fold is not None
    keys = sorted((k for k in fold.written if isinstance(k, RunsKey)), key=lambda k: k.position)
    found = [fold.runs_written(key) for key in keys]
    return [each.count if isinstance(each, PackedRuns) else 1 for each in found if each]


def test_many_entries_become_one_and_the_map_stays() -> None:
    lane, view = on_lane(200, head=2_000)

    record = view.lane(lane.spec.id.source.topic, lane.spec.id.source.partition)

    assert written(lane, view) == [200]
    assert record is not None
    assert [run.source_offset for run in record.runs] == [11 * number for number in range(200)]
    assert lane.unmerged_entries == 1
    assert not is_merge_due(lane)


def test_what_is_not_settled_stays_as_it_was_written() -> None:
    lane, view = on_lane(200, head=1_500)

    assert written(lane, view) == [150, *[1] * 50]
    assert lane.unmerged_entries == 51


def test_few_entries_are_left_alone() -> None:
    lane, view = on_lane(100, head=1_000)

    assert written(lane, view) == [1] * 100


def test_a_ledger_that_may_not_be_written_is_merged_later() -> None:
    lane = carried_lane()
    lane.unmerged_entries = 500

    class Refusing:
        async def catch_up(self) -> None:
            raise NotAuthorised("no READ")

    flow = cast(Any, lane.flow)
    flow.ledger = Refusing()
    asyncio.run(merge_runs(flow, [lane]))

    assert lane.unmerged_entries == 500
    assert not isinstance(lane, Tombstone)


def answers(lane: CarriedLane, view: LedgerView) -> OffsetMap:
    source = lane.spec.id.source
    record = view.lane(source.topic, source.partition)
    assert record is not None
    end = LaneEnd(position=2_000, source_next_offset=2_200, target_next_offset=2_000)
    return OffsetMap(record, end)


def test_runs_beyond_the_bound_are_forgotten_but_for_one_in_each_segment() -> None:
    with patch.object(segments, "SEGMENT_RUNS", 10):
        lane, view = on_lane(200, head=2_000, runs_max=100)

    offsets = answers(lane, view)

    assert written(lane, view) == [10] * 11
    assert offsets.to_target(1_100) == Exact(offset=1_000)
    assert offsets.to_target(1_099) == Clamped(offset=900, side="coarse")
    assert offsets.to_target(990) == Exact(offset=900)
    assert offsets.to_source(950) == Clamped(offset=990, side="coarse")


def test_runs_of_records_that_neither_log_has_are_forgotten() -> None:
    with patch.object(segments, "SEGMENT_RUNS", 10):
        lane, view = on_lane(200, head=2_000, logs_begin=1_105)

    offsets = answers(lane, view)

    # Position 1,100 is source offset 1,210: the segment before it still has records.
    assert offsets.to_target(1_100) == Exact(offset=1_000)
    assert offsets.to_target(1_050) == Clamped(offset=900, side="coarse")


def test_a_lane_whose_logs_have_all_its_records_forgets_nothing() -> None:
    with patch.object(segments, "SEGMENT_RUNS", 10):
        lane, view = on_lane(200, head=2_000)

    assert written(lane, view) == [10] * 20
    assert answers(lane, view).to_target(1_099) == Exact(offset=1_000)
