"""Where consumer groups go on at the target, and what that costs them. No I/O; runs anywhere.

Every strategy answers with an offset of the target. Beside it stands the exact one, which the map
gives, and the difference in mirrored records: what the group would read again, what it would never
read. Records are counted by position, so others' records and markers between them do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal, Protocol, assert_never

from heliograph.broker.group_view import GroupOffset, is_share
from heliograph.groups.both_ways import unread_from
from heliograph.groups.checkpoint_plan import CheckpointKey
from heliograph.ledger.both_ways import earlier_of
from heliograph.ledger.entries import StartEntry
from heliograph.ledger.translate import LaneEnd, OffsetMap, Side, Unsafe
from heliograph.ledger.view import LaneRecord, LedgerView
from heliograph.model import TopicPartition
from heliograph.wire.mirror_records import Checkpoint

Origin = Literal["source", "checkpoint", "target"]
_NO_OFFSETS: Final[Mapping[TopicPartition, int]] = MappingProxyType({})
_SHARE_NOTE: Final = (
    "share group: its start offset; records acknowledged beyond it are delivered again"
)


class Strategy(StrEnum):
    """What a group's new place is taken from."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIME = "time"
    MAP = "map"
    CHECKPOINT = "checkpoint"
    COPY = "copy"

    @property
    def needs_no_position(self) -> bool:
        """Whether the target alone has the answer, for every partition of a topic."""
        return self in (Strategy.EARLIEST, Strategy.LATEST, Strategy.TIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """Where a group stood on one source partition, and who says so."""

    offset: int
    as_of_ms: int | None
    """When that was true; None where nobody noted it."""
    origin: Origin
    """`target`: only the target's own commit is known, and this is its offset there."""
    metadata: str = ""


class PlacedLane(Protocol):
    """How far a lane has come; `ledger.locations.LaneLocation` is one."""

    @property
    def target(self) -> TopicPartition: ...
    @property
    def record(self) -> LaneRecord: ...
    @property
    def position(self) -> int: ...
    @property
    def exact(self) -> bool: ...
    @property
    def end(self) -> LaneEnd: ...


class FlowState(Protocol):
    """What must be known of a flow to place its groups; `groups.snapshot` finds it out."""

    @property
    def locations(self) -> Mapping[TopicPartition, PlacedLane]: ...
    @property
    def groups(self) -> Mapping[str, Mapping[TopicPartition, CommittedOffset]]: ...
    @property
    def checkpoints(self) -> Mapping[CheckpointKey, Checkpoint]: ...
    @property
    def committed(self) -> Mapping[str, Mapping[TopicPartition, GroupOffset]]: ...
    @property
    def target_starts(self) -> Mapping[TopicPartition, int]: ...
    @property
    def target_ends(self) -> Mapping[TopicPartition, int]: ...
    @property
    def is_both_ways(self) -> bool:
        """Whether the target takes writes under the same names, which come back to the source."""
        ...

    @property
    def back(self) -> LedgerView | None:
        """Of the flow that brings them; None where it could not be read."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMove:
    """One group on one partition of the target; offsets are the next ones to be read."""

    group: str
    source: TopicPartition
    target: TopicPartition
    source_offset: int | None
    """Where the group stood on the source, if that is known."""
    target_offset: int
    """What would be committed."""
    exact_offset: int | None
    """By the map; None where the map has no answer, or only a coarse one."""
    clamped: Side | None
    """How the exact offset is the nearest one only; see `ledger.translate`."""
    lag_records: int
    """Offsets of the target from here to its end."""
    repeated_records: int | None
    """Mirrored records read again compared with the exact offset; None where that is unknown."""
    skipped_records: int | None
    foreign_offsets: int = 0
    """Offsets between here and the exact one that this flow did not write."""
    as_of_ms: int | None = None
    origin: Origin | None = None
    """Who says where the group stood; None where nobody does."""
    committed_offset: int | None = None
    """Where the target's own group stands, if it does."""
    metadata: str = ""
    note: str = ""

    @property
    def is_needed(self) -> bool:
        return self.committed_offset != self.target_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOffset:
    """One group on one partition that has no answer; nothing is committed there."""

    group: str
    source: TopicPartition
    target: TopicPartition | None
    source_offset: int | None
    as_of_ms: int | None
    origin: Origin | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class GroupPlan:
    """Every group and partition, in order: either there is a place or a reason."""

    strategy: Strategy
    moves: tuple[GroupMove, ...]
    unplaced: tuple[NoOffset, ...] = ()


def plan_group_offsets(
    known: FlowState,
    strategy: Strategy,
    *,
    time_offsets: Mapping[TopicPartition, int] = _NO_OFFSETS,
    cut_offsets: Mapping[TopicPartition, int] = _NO_OFFSETS,
) -> GroupPlan:
    """`time_offsets` are the first offsets of the target not older than the time; -1 for none.

    No group goes on behind `cut_offsets`, where there is one that is not -1.
    """
    moves: list[GroupMove] = []
    unplaced: list[NoOffset] = []
    for group in sorted(known.groups):
        for source in _partitions(known, group, strategy):
            row = _GroupPartition(known, group, source)
            answer = row.location(strategy, time_offsets, cut_offsets)
            if isinstance(answer, GroupMove):
                moves.append(answer)
            else:
                unplaced.append(answer)
    return GroupPlan(strategy=strategy, moves=tuple(moves), unplaced=tuple(unplaced))


def _partitions(known: FlowState, group: str, strategy: Strategy) -> list[TopicPartition]:
    """Where the group stood; all of those topics where the target alone has the answer.

    A partition left out there would go on by `auto.offset.reset`, which may skip what was asked
    for. The other strategies leave it out as the group itself did.
    """
    stood = known.groups[group].keys()
    if not strategy.needs_no_position:
        return sorted(stood)
    topics = {source.topic for source in stood}
    return sorted({*stood, *(source for source in known.locations if source.topic in topics)})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exact:
    offset: int
    position: int
    clamped: Side | None = None
    note: str = ""


class _NoPlace(Exception):
    """Ends the search for a place of one row; never leaves this module."""


class _GroupPartition:
    """One group on one source partition, while its place is looked for."""

    def __init__(self, known: FlowState, group: str, source: TopicPartition) -> None:
        self._known, self._group, self._source = known, group, source
        self._at = known.groups[group].get(source)
        self._lane = known.locations.get(source)

    def location(
        self,
        strategy: Strategy,
        time_offsets: Mapping[TopicPartition, int],
        cut_offsets: Mapping[TopicPartition, int],
    ) -> GroupMove | NoOffset:
        try:
            return self._move(strategy, time_offsets, cut_offsets)
        except _NoPlace as no:
            at = self._at
            return NoOffset(
                group=self._group,
                source=self._source,
                target=None if self._lane is None else self._lane.target,
                source_offset=None if at is None or at.origin == "target" else at.offset,
                as_of_ms=None if at is None else at.as_of_ms,
                origin=None if at is None else at.origin,
                why=str(no),
            )

    def _move(
        self,
        strategy: Strategy,
        time_offsets: Mapping[TopicPartition, int],
        cut_offsets: Mapping[TopicPartition, int],
    ) -> GroupMove:
        lane, at = self._lane, self._at
        if lane is None:
            raise _NoPlace("nothing of it is mirrored yet")
        start = self._known.target_starts.get(lane.target)
        end = self._known.target_ends.get(lane.target)
        if start is None or end is None:
            raise _NoPlace(f"the target does not tell where {lane.target} starts and ends")
        exact = self._exact(lane)
        offset, why = self._wanted(strategy, lane, exact, (start, end), time_offsets)
        notes = [why]
        if 0 <= (cut := cut_offsets.get(lane.target, -1)) < offset:
            notes.append(f"set back from {offset} to the cut")
            offset = cut
        if isinstance(exact, _Exact) and strategy is Strategy.MAP:
            notes.append(exact.note)
        if at is not None and is_share(at.metadata):
            notes.append(_SHARE_NOTE)
        if offset < start:
            notes.append(f"{start - offset:,} offsets from {offset} on have expired on the target")
        if offset > end:
            notes.append(f"the target ends at {end}, before {offset}")
        offset = min(max(offset, start), end)
        repeated, skipped, foreign = _compared(lane, exact, offset)
        committed = self._known.committed.get(self._group, {}).get(lane.target)
        return GroupMove(
            group=self._group,
            source=self._source,
            target=lane.target,
            source_offset=None if at is None or at.origin == "target" else at.offset,
            target_offset=offset,
            exact_offset=_known_offset(exact),
            clamped=exact.clamped if isinstance(exact, _Exact) else None,
            lag_records=end - offset,
            repeated_records=repeated,
            skipped_records=skipped,
            foreign_offsets=foreign,
            as_of_ms=None if at is None else at.as_of_ms,
            origin=None if at is None else at.origin,
            committed_offset=None if committed is None else committed.offset,
            metadata="" if at is None else at.metadata,
            note="; ".join(filter(None, notes)),
        )

    def _wanted(
        self,
        strategy: Strategy,
        lane: PlacedLane,
        exact: _Exact | str,
        bounds: tuple[int, int],
        time_offsets: Mapping[TopicPartition, int],
    ) -> tuple[int, str]:
        """The strategy's offset, and a sentence about it or nothing."""
        start, end = bounds
        match strategy:
            case Strategy.EARLIEST:
                return start, ""
            case Strategy.LATEST:
                return end, ""
            case Strategy.TIME:
                return _at_time(lane.target, bounds, time_offsets)
            case Strategy.MAP:
                return self._by_map(lane, exact)
            case Strategy.CHECKPOINT:
                told = self._known.checkpoints.get((self._group, lane.target))
                if told is None:
                    raise _NoPlace("there is no checkpoint of it")
                return told.downstream_offset, ""
            case Strategy.COPY:
                if self._at is None or self._at.origin == "target":
                    raise _NoPlace("where the group stood on the source is not known")
                return self._at.offset, ""
            case _:
                assert_never(strategy)

    def _by_map(self, lane: PlacedLane, exact: _Exact | str) -> tuple[int, str]:
        if isinstance(exact, _Exact):
            return exact.offset, ""
        stands = self._known.committed.get(self._group, {}).get(lane.target)
        if self._at is not None and self._at.origin == "target" and stands is not None:
            return stands.offset, exact
        raise _NoPlace(exact)

    def _exact(self, lane: PlacedLane) -> _Exact | str:
        """By the map; a sentence where it has no answer, or none that is safe."""
        at, runs, end = self._at, lane.record.runs, lane.end
        offsets = OffsetMap(lane.record, end)
        if offsets.unsafe is not None:
            return offsets.unsafe.reason
        if at is None:
            return "the group has committed nothing there"
        if at.origin == "target":
            return "nothing is known but where the group stands on the target; it stays there"
        told = self._known.checkpoints.get((self._group, lane.target))
        restart = _restart(lane.record)
        if _is_older(at, restart) and told is not None:
            # Source offsets mean the present topic. What the checkpoint said of the target was
            # true when the other one was there, and still is.
            return _Exact(
                offset=told.downstream_offset,
                position=min(runs.position_of_target(told.downstream_offset), end.position),
                note="the source topic was created again after this checkpoint",
            )
        found = offsets.to_target(at.offset)
        if isinstance(found, Unsafe):
            return found.reason
        exact = _Exact(
            offset=found.offset,
            position=_position(lane, at.offset),
            clamped=found.side,
            note=_clamp_note(lane, at.offset, found.side),
        )
        return self._both_ways(lane, at, exact) if self._known.is_both_ways else exact

    def _both_ways(self, lane: PlacedLane, at: CommittedOffset, exact: _Exact) -> _Exact | str:
        """Not behind what began on the target and was not read on the source (`both_ways`)."""
        told = self._known.checkpoints.get((self._group, lane.target))
        offset = exact.offset
        if self._known.back is not None:
            asked = (self._source, at.offset)
            unread = unread_from(self._known.back, [asked]).get(asked, exact.offset)
            if unread is None:
                return "the ledger of the way back contradicts itself until its lane is resynced"
            offset = earlier_of(lane.record.runs, exact.offset, unread)
        elif told is not None and told.upstream_offset == at.offset:
            # Made while the source could be asked.
            offset = min(offset, told.downstream_offset)
        if offset == exact.offset:
            return exact
        why = f"set back from {exact.offset}: {self._source} had less of the target's own records"
        position = min(lane.record.runs.position_of_target(offset), lane.end.position)
        return replace(exact, offset=offset, position=position, note=why)


def _at_time(
    target: TopicPartition, bounds: tuple[int, int], time_offsets: Mapping[TopicPartition, int]
) -> tuple[int, str]:
    start, end = bounds
    found = time_offsets.get(target)
    if found is None:
        raise _NoPlace(f"the target does not tell which record of {target} has that time")
    if found < 0:
        return end, "no record is that new: the end" if end > start else "the partition is empty"
    if found <= start:
        return found, "no record is older: the start"
    return found, ""


def _position(lane: PlacedLane, source_offset: int) -> int:
    """Position of the first mirrored record the group has yet to read."""
    runs, end = lane.record.runs, lane.end
    if source_offset >= end.source_next_offset or not runs:
        return end.position
    return min(runs.position_of_source(source_offset), end.position)


def _compared(
    lane: PlacedLane, exact: _Exact | str, target_offset: int
) -> tuple[int | None, int | None, int]:
    """Records repeated and skipped, and others' offsets between the two places."""
    if isinstance(exact, str):
        return None, None, 0
    if exact.clamped == "coarse":
        # The exact offset is there or later: nothing before it can be skipped.
        return None, 0 if target_offset <= exact.offset else None, 0
    position = lane.position
    if target_offset < lane.end.target_next_offset and lane.record.runs:
        position = min(lane.record.runs.position_of_target(target_offset), lane.position)
    repeated, skipped = max(0, exact.position - position), max(0, position - exact.position)
    foreign = abs(target_offset - exact.offset) - repeated - skipped
    return repeated, skipped, max(0, foreign)


def _known_offset(exact: _Exact | str) -> int | None:
    return None if isinstance(exact, str) or exact.clamped == "coarse" else exact.offset


def _restart(record: LaneRecord) -> StartEntry | None:
    """Where the lane went on with a source topic that was created again; the last time."""
    if not record.runs:
        return None
    at = record.runs.source_restart_position
    return next((start for start in record.starts[1:] if start.position == at), None)


def _is_older(at: CommittedOffset, restart: StartEntry | None) -> bool:
    if restart is None or at.origin != "checkpoint" or at.as_of_ms is None:
        return False
    return at.as_of_ms < restart.at_ms


def _clamp_note(lane: PlacedLane, source_offset: int, clamped: Side | None) -> str:
    match clamped:
        case None:
            return ""
        case "after":
            beyond = source_offset - lane.end.source_next_offset
            noted = "" if lane.exact else ", as the ledger last noted it"
            return f"{beyond:,} source offsets beyond what is mirrored{noted}: its end"
        case "coarse":
            return (
                f"the ledger has forgotten where exactly source {source_offset} is: the last "
                "offset known before it, so some records are read again"
            )
        case "before":
            first = _first_source_offset(lane)
            return f"source {source_offset} to {first} was never mirrored: the first that was"
        case _:
            assert_never(clamped)


def _first_source_offset(lane: PlacedLane) -> int:
    runs = lane.record.runs
    if not runs or runs.source_restart_position >= lane.position:
        return lane.end.source_next_offset
    anchors = runs.anchors
    return runs.source_offset_at(runs.exact_from) if anchors is None else anchors.sources[0]


def groups_of(moves: Iterable[GroupMove]) -> dict[str, list[GroupMove]]:
    """The moves of each group, which are committed together."""
    found: dict[str, list[GroupMove]] = {}
    for move in moves:
        found.setdefault(move.group, []).append(move)
    return found
