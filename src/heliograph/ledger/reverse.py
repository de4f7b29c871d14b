"""A lane's map told from its other side, for the mirror that goes back. No I/O; runs anywhere.

Where a lane went from `A` to `B`, the lane from `B` to `A` has the same records at the same
positions, with source and target offset exchanged. It goes on at the position where the histories
of the two clusters part, so that all before it translates exactly, in both directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from heliograph.errors import InvariantError
from heliograph.ledger.entries import Entry, HeadEntry, SegmentEntry, StartEntry, runs_entries
from heliograph.ledger.packed_runs import pack_anchors
from heliograph.ledger.runs import Run, Runs, require_ascending
from heliograph.model import TopicId, TopicName


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStart:
    """Where a lane begins that another mirror's history comes before."""

    topic: TopicName
    partition: int
    here: Run
    """The first record that is not on the target, and where it will go."""
    before: tuple[Run, ...] = ()
    """What is known to be on both sides before `here`."""
    anchors: tuple[Run, ...] = ()
    """Some runs from before those, where the others were forgotten."""
    is_identical: bool = False
    """Whether all that was forgotten had the same offset on both sides."""
    source_end_offset: int
    source_topic_id: TopicId | None
    target_topic_id: TopicId | None
    adopted: bool = False
    """Whether the target has records before the first run, at offsets nobody knows."""
    begun_at: int | None = None
    """As the head has it."""


def reversed_runs(runs: Runs, end_position: int) -> tuple[Run, ...]:
    """The runs before `end_position`, source and target exchanged.

    Only those of the present source topic: the others' records are not there to be mapped to.
    """
    overlap_at = runs.overlap_at
    if overlap_at is not None and overlap_at < end_position:
        raise InvariantError(f"target offsets go back at position {overlap_at}")
    if not runs or runs.exact_from >= end_position:
        return ()
    before = takewhile(lambda run: run.position < end_position, runs.since(runs.exact_from))
    return tuple(map(exchanged, before))


def reversed_anchors(runs: Runs) -> tuple[Run, ...]:
    """The anchors of what the ledger has forgotten before those runs."""
    anchors = runs.anchors if runs else None
    if anchors is None:
        return ()
    return tuple(exchanged(anchors.run(index)) for index in range(len(anchors.positions)))


def lane_entries(lane: LaneStart, *, author: str, at_ms: int, detail: str) -> list[Entry]:
    """Start, runs and head, in the order in which they must be written.

    The head says where the next record goes; the broker must not know the flow's producer, or a
    resume would take its last sequence for the lane's position.
    """
    here = lane.here
    runs = [run for run in lane.before if run.position < here.position]
    if not runs or runs[-1].at(here.position) != here:
        runs.append(here)
    require_ascending(runs)
    first = (*lane.anchors, *runs)[0]
    start = StartEntry(
        topic=lane.topic,
        partition=lane.partition,
        position=first.position,
        author=author,
        source_offset=first.source_offset,
        target_offset=first.target_offset,
        source_topic_id=lane.source_topic_id,
        target_topic_id=lane.target_topic_id,
        at_ms=at_ms,
        adopted=lane.adopted,
    )
    head = HeadEntry(
        topic=lane.topic,
        partition=lane.partition,
        position=here.position,
        source_next_offset=here.source_offset,
        source_end_offset=max(lane.source_end_offset, here.source_offset),
        target_next_offset=here.target_offset,
        source_topic_id=lane.source_topic_id,
        target_topic_id=lane.target_topic_id,
        at_ms=at_ms,
        state="idle",
        detail=detail,
        begun_at=lane.begun_at,
    )
    explained = runs_entries(lane.topic, lane.partition, runs, author=author, end_position=None)
    if lane.anchors:
        packed = pack_anchors(lane.anchors, runs[0].position, is_identical=lane.is_identical)
        coarse = SegmentEntry(
            topic=lane.topic, partition=lane.partition, author=author, packed=packed
        )
        return [start, coarse, *explained, head]
    return [start, *explained, head]


def exchanged(run: Run) -> Run:
    """As the lane that goes the other way has it."""
    return Run(
        position=run.position, source_offset=run.target_offset, target_offset=run.source_offset
    )
