"""A streaming query's positions on the source, found on the target. No I/O; runs anywhere.

A batch that was planned and not committed is run again by Spark under its own number, so both its
ends are translated. It must never grow: a sink that has the batch already skips it by its number,
and whatever the batch held more than before would be lost. An end beyond what is mirrored comes
down to where that ends, which at worst reads records again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from heliograph.errors import CheckpointError
from heliograph.ledger.translate import Side, Translated, Translation, Unsafe, translated
from heliograph.model import TopicName, TopicPartition
from heliograph.spark_checkpoint.offsets_log import Positions


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrored:
    """How far a lane has come, and what the target still holds of it."""

    target: TopicPartition
    source_next_offset: int
    target_start_offset: int | None
    target_end_offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowPositions:
    """What translating needs to know of a flow."""

    lanes: Mapping[TopicPartition, Mirrored]
    """By source partition; only those that have begun."""
    to_target: Callable[[TopicPartition, int], Translation]
    """Asked only for partitions of `lanes`."""
    target_topic: Callable[[TopicName], TopicName]

    @property
    def topics(self) -> frozenset[TopicName]:
        return frozenset(partition.topic for partition in self.lanes)

    def target_of(self, source: TopicPartition) -> TopicPartition:
        return TopicPartition(topic=self.target_topic(source.topic), partition=source.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMove:
    """Where a query goes on with one partition."""

    query_source: str
    """The source's place among the query's sources, or its name."""
    source: TopicPartition
    target: TopicPartition
    source_offset: int | None
    """None where the query had not begun with it."""
    target_offset: int | None
    """None where it is left out, so that Spark begins with it when it finds it."""
    planned_source_offset: int | None = None
    """The end of a batch that was planned and not committed."""
    planned_target_offset: int | None = None
    clamped: Side | None = None
    planned_clamped: Side | None = None
    lag_records: int | None = None
    """Offsets of the target the query has yet to read."""
    notes: tuple[str, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether the query reads on without a record missed or repeated."""
        return not self.notes


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceMove:
    """One source of a query: its positions on the target, and what is to be said of them."""

    start: Positions
    planned: Positions | None
    moves: tuple[PartitionMove, ...]


def is_of_flow(positions: Positions | None, topics: Collection[TopicName], where: str) -> bool:
    """Whether a source reads what the flow mirrors; raises where it does so in part."""
    if positions is None:
        return False
    read = {partition.topic for partition in positions}
    missing = sorted(read - set(topics))
    if len(missing) == len(read):
        return False
    if missing:
        raise CheckpointError(
            f"{where}: reads {', '.join(missing)}, which the flow has not mirrored, together with "
            "topics it has; on the target that source would miss them. Mirror them first, or take "
            "them out of the query and its checkpoint"
        )
    negative = next((partition for partition, at in positions.items() if at < 0), None)
    if negative is not None:
        raise CheckpointError(f"{where}: {positions[negative]} is no offset of {negative}")
    return True


def translate_source(
    query_source: str, start: Positions, planned: Positions | None, flow: FlowPositions
) -> SourceMove:
    """`start` is where the query goes on; `planned` is the end of a batch it would run again."""
    moved_start: dict[TopicPartition, int] = {}
    moved_planned: dict[TopicPartition, int] = {}
    moves: list[PartitionMove] = []
    for source in [*start, *(new for new in planned or () if new not in start)]:
        end = None if planned is None else planned.get(source)
        move = _moved(query_source, source, start.get(source), end, flow)
        moves.append(move)
        if move.target_offset is not None:
            moved_start[move.target] = move.target_offset
        if move.planned_target_offset is not None:
            moved_planned[move.target] = move.planned_target_offset
    return SourceMove(
        start=moved_start,
        planned=None if planned is None else moved_planned,
        moves=tuple(moves),
    )


def translate_past(positions: Positions, flow: FlowPositions) -> Positions:
    """Positions nothing is read from any more; what has no answer is left out."""
    found: dict[TopicPartition, int] = {}
    for source, offset in positions.items():
        answer = translated(flow.to_target(source, offset)) if source in flow.lanes else None
        if answer is not None:
            found[flow.target_of(source)] = answer.offset
    return found


def _moved(
    query_source: str,
    source: TopicPartition,
    offset: int | None,
    planned: int | None,
    flow: FlowPositions,
) -> PartitionMove:
    lane = flow.lanes.get(source)
    if lane is None:
        return PartitionMove(
            query_source=query_source,
            source=source,
            target=flow.target_of(source),
            source_offset=offset,
            target_offset=None,
            planned_source_offset=planned,
            notes=_of_no_lane(offset),
        )
    # A partition that is new in the planned batch began at the first record. Said outright: Spark
    # asks new partitions to start at 0, and a mirrored one may start anywhere.
    at = _answer(source, 0 if offset is None else offset, flow)
    end = None if planned is None else _answer(source, planned, flow)
    clamped = None if offset is None else at.side
    ended = lane.target_end_offset
    return PartitionMove(
        query_source=query_source,
        source=source,
        target=lane.target,
        source_offset=offset,
        target_offset=at.offset,
        planned_source_offset=planned,
        planned_target_offset=None if end is None else end.offset,
        clamped=clamped,
        planned_clamped=None if end is None else end.side,
        lag_records=None if ended is None else max(0, ended - at.offset),
        notes=_notes(lane, offset, at.offset, clamped, planned, end),
    )


def _answer(source: TopicPartition, offset: int, flow: FlowPositions) -> Translated:
    answer = flow.to_target(source, offset)
    if isinstance(answer, Unsafe):
        raise CheckpointError(
            f"{source}: the ledger does not say where source offset {offset} is on the target: "
            f"{answer.reason}"
        )
    return answer


def _of_no_lane(offset: int | None) -> tuple[str, ...]:
    if not offset:
        # Nothing was read of it either: Spark finds it new on the target and reads it all.
        return ()
    return (
        f"nothing of it is mirrored, and the query had read up to offset {offset:,}: left out, so "
        "that Spark reads it from its earliest offset once it is there",
    )


def _notes(
    lane: Mirrored,
    offset: int | None,
    target_offset: int,
    clamped: Side | None,
    planned: int | None,
    end: Translated | None,
) -> tuple[str, ...]:
    notes: list[str] = []
    if offset is not None and clamped == "after":
        notes.append(
            f"the query had read {offset - lane.source_next_offset:,} offsets beyond what is "
            "mirrored: it goes on where that ends, and reads them again should they still arrive"
        )
    if "coarse" in (clamped, None if end is None else end.side):
        notes.append(
            "the ledger has forgotten the exact offsets there: the query goes on at the last one "
            "that is known before, and reads some records again"
        )
    if clamped == "before":
        notes.append(
            "the query stood before the first mirrored record: it goes on with that one, and what "
            "lies between is not on the target"
        )
    if planned is not None and end is not None and end.side == "after" and clamped != "after":
        notes.append(
            f"the planned batch ended {planned - lane.source_next_offset:,} offsets beyond what is "
            "mirrored: it ends where that ends, and the rest is read again should it still arrive"
        )
    gone = 0 if lane.target_start_offset is None else lane.target_start_offset - target_offset
    if gone > 0:
        notes.append(
            f"{gone:,} offsets are gone from the target: Spark stops there, unless "
            "failOnDataLoss is false"
        )
    return tuple(notes)
