"""Where a lane stands, from its target's log and its record in the ledger. No I/O; runs anywhere.

The caller reads the log first and the ledger second: a run is durable before the first batch that
needs it, so a ledger read later than the log always explains the log. Where log and ledger do not
settle it, `NeedsScan` says from where the flow's own batches are to be read, and `Scan` takes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heliograph.ledger.correction import Correction
from heliograph.ledger.entries import HeadEntry
from heliograph.ledger.positions import SEQUENCES, position_from_sequence
from heliograph.ledger.runs import Run
from heliograph.ledger.view import LaneRecord, LedgerView
from heliograph.model import TopicId, TopicPartition
from heliograph.wire.batch import BatchHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """A target partition as its leader showed it, before the ledger was read."""

    start: int = 0
    """The first offset; only a scan needs it."""
    end: int
    """The high watermark: the leader may hold batches behind it."""
    last_sequence: int
    """Of the flow's producer; -1 where the leader remembers none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A position of the lane that is known for sure, and the target offset it goes on at."""

    position: int
    target_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """The lane stands at this position, and the map is right up to it."""

    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedsScan:
    """Records of others lie in the log, two runs overlap, or the leader forgot the producer."""

    anchor: Anchor
    """Our batches are to be read from here on."""
    position: int | None
    """The lane's position, where the leader remembers it; the map may be wrong all the same."""

    @property
    def is_remembered(self) -> bool:
        return self.position is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class AheadOfEnd:
    """The leader has batches up to `position` that the log's end does not count yet.

    Either its followers do not have them yet, and they show soon or are gone; or they were
    appended after the end was read. What lasts is neither, see `if_lasting`.
    """

    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncated:
    """The log ends before what was acknowledged, and nothing says that all before is there."""

    anchor: Anchor


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsMissing:
    """Records from `position` up to `end_position` are not in the log, though later ones are."""

    position: int
    end_position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingLeft:
    """All that came behind the anchor was deleted, and the leader has forgotten the producer: what
    was deleted may be ours, or others'."""

    position: int
    """The anchor's: all before it was appended."""
    deleted: int
    """Offsets that tell nothing; at most so many of our records were among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRecreated:
    """The target topic is not the one the lane wrote: nothing in its log says how far it came."""

    position: int
    """As the ledger has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unexplained:
    """The log has a position that no run explains."""

    position: int


Located = At | NeedsScan | AheadOfEnd | Truncated | TargetRecreated | Unexplained


def locate(record: LaneRecord, log: LogState, *, target_topic_id: TopicId | None = None) -> Located:
    """Where a lane that has begun stands; `target_topic_id` is that of the log's topic."""
    anchor, runs = anchor_of(record), record.runs
    if is_other_topic(record.starts[-1].target_topic_id, target_topic_id):
        # Before anything is read off its log.
        return TargetRecreated(position=anchor.position)
    last_sequence, overlap_at = _own_sequence(record, log), runs.overlap_at
    position: int | None = None
    if last_sequence >= 0:
        position = position_from_sequence(last_sequence, anchor.position)
        if not runs.explains(position):
            return Unexplained(position=position)
        if overlap_at is None or overlap_at > position:
            expected = runs.target_offset_at(position)
            if expected == log.end:
                return At(position=position)
            if expected > log.end:
                return AheadOfEnd(position=position)
    elif log.end < _own_end(record, anchor):
        return Truncated(anchor=anchor)
    elif log.end == anchor.target_offset and (overlap_at is None or overlap_at > anchor.position):
        return At(position=anchor.position)
    return _needs_scan(record, anchor, position)


def if_lasting(record: LaneRecord, log: LogState, ahead: AheadOfEnd) -> NeedsScan | Truncated:
    """What a log that stays behind its map amounts to: the map is wrong, or records are gone."""
    anchor = anchor_of(record)
    if log.end < _own_end(record, anchor) and ahead.position >= anchor.position:
        return Truncated(anchor=anchor)
    return _needs_scan(record, anchor, ahead.position)


def _needs_scan(record: LaneRecord, anchor: Anchor, position: int | None) -> NeedsScan:
    runs = record.runs
    before = runs.run_before_overlap
    if position is not None and position < anchor.position:
        # The log lost its end; the last head is too late to begin there.
        anchor = Anchor(position=position, target_offset=runs.target_offset_at(position))
    if before is not None and before.position < anchor.position:
        # The log says which of the two runs is right.
        anchor = Anchor(position=before.position, target_offset=before.target_offset)
    return NeedsScan(anchor=anchor, position=position)


def anchor_of(record: LaneRecord) -> Anchor:
    """The last head, or the last start where the lane was not noted since."""
    start, head = record.starts[-1], _head_since_start(record)
    if head is not None:
        return Anchor(position=head.position, target_offset=head.target_next_offset)
    return Anchor(position=start.position, target_offset=start.target_offset)


def _own_end(record: LaneRecord, anchor: Anchor) -> int:
    """Where the records before the anchor end on the target; those of others behind them, which
    the anchor counts, may be gone without harm to the lane."""
    before = anchor.position - 1
    if not record.runs.explains(before):
        return anchor.target_offset
    return min(anchor.target_offset, record.runs.target_offset_at(before) + 1)


def _head_since_start(record: LaneRecord) -> HeadEntry | None:
    """None where the last start is newer: the lane was sent elsewhere since the head."""
    head, start = record.head, record.starts[-1]
    if head is None or head.position < start.position:
        return None
    if head.position > start.position:
        return head
    # All that was read since the start was left out. A start at the same place as another takes
    # its key, so the head must name the start that it goes on from.
    is_of_start = head.begun_at == start.source_offset
    is_of_topic = not is_other_topic(start.source_topic_id, head.source_topic_id)
    return head if is_of_start and is_of_topic else None


def begun_at(
    view: LedgerView, source: TopicPartition, position: int, source_next_offset: int
) -> int | None:
    """The source offset of the lane's last start, where it read on from there and mirrored nothing:
    what a head must say to count."""
    fold = view.fold(source.topic, source.partition)
    starts = () if fold is None else fold.starts_in_force()
    if not starts or starts[-1].position != position:
        return None
    offset = starts[-1].source_offset
    return offset if source_next_offset > offset else None


def source_next_offset(record: LaneRecord, position: int) -> int:
    """The source offset a lane at `position` goes on at, as far as the ledger knows."""
    mapped = record.runs.source_offset_at(position)
    head = _head_since_start(record)
    if head is not None and head.position == position:
        # What was dropped since the last record is not in the runs.
        return max(mapped, head.source_next_offset)
    return mapped


def is_of_earlier_topic(record: LaneRecord, position: int) -> bool:
    """Whether the record at `position` came from a source topic that was deleted since, so that
    the offset the runs have for it is not one of the topic there is."""
    last = record.starts[-1]
    if position >= last.position:
        return False
    then = next(
        (each for each in reversed(record.starts) if each.position <= position), record.starts[0]
    )
    return is_other_topic(then.source_topic_id, last.source_topic_id)


def contradicts_head(record: LaneRecord, position: int) -> bool:
    """Whether the runs put `position` at a source offset that the lane had passed before.

    Each record since the head takes one source offset at least. Runs that say less have lost some,
    and to follow them would copy records again.
    """
    head = _head_since_start(record)
    if head is None or position <= head.position:
        return False
    passed = head.source_next_offset + position - head.position
    return record.runs.source_offset_at(position) < passed


def is_other_topic(known: TopicId | None, found: TopicId | None) -> bool:
    """Whether a topic was deleted and created again; an id that is not known says nothing."""
    return known is not None and found is not None and known != found


def _own_sequence(record: LaneRecord, log: LogState) -> int:
    if record.starts[-1].position == 0 and log.last_sequence == SEQUENCES - 1:
        # The last of the filler (`broker.seed`): nothing of the lane's own is there yet.
        return -1
    return log.last_sequence


class Scan:
    """Shown the flow's own batches from `NeedsScan.anchor` on, says where the lane stands."""

    def __init__(self, record: LaneRecord, needs: NeedsScan, log: LogState) -> None:
        self._record, self._log = record, log
        self._anchor = needs.anchor
        self._remembered: int | None = None
        if needs.is_remembered:
            # Counted from where the batches are counted from, so that the two compare.
            self._remembered = position_from_sequence(log.last_sequence, self._anchor.position)
        self._correction = Correction(record.runs, needs.anchor.position)
        self._own_end = _own_end(record, needs.anchor)
        self._read_from = max(self._own_end, log.start)
        self._missing: RecordsMissing | None = None

    @property
    def read_from(self) -> int:
        return self._read_from

    def is_complete(self) -> bool:
        """Whether all that the leader remembered was seen. More may lie behind it where a flow
        that another mirror still carries is scanned."""
        seen = self._correction.position or self._anchor.position
        return self._remembered is not None and seen >= self._remembered

    def see(self, header: BatchHeader) -> None:
        """One batch of the flow's producer, oldest first."""
        first = position_from_sequence(header.base_sequence, self._anchor.position) - 1
        count = header.last_offset_delta + 1
        expected = self._correction.position or self._anchor.position
        # Deletion and compaction keep offsets, and others' records only add to them: batches
        # closer together than their positions have lost what was between.
        is_closer = header.base_offset - self._own_end < first - expected
        if self._missing is None and first > expected and is_closer:
            self._missing = RecordsMissing(position=expected, end_position=first)
        elif self._missing is None and 0 < expected <= first and header.base_offset < self._own_end:
            # An unclean election took the end of the log, and with it all that its leader knew of
            # the producer: any batch was then taken as the next one, where others had been.
            lost_from = expected - 1
            if self._record.runs.overlap_at is None:
                lost_from = self._record.runs.position_of_target(header.base_offset)
            self._missing = RecordsMissing(position=min(lost_from, expected), end_position=first)
        self._correction.see(first, count, header.base_offset)
        self._own_end = header.base_offset + count

    def found(self) -> At | AheadOfEnd | RecordsMissing | NothingLeft:
        """Once all batches were seen."""
        if self._missing is not None:
            return self._missing
        position = self._correction.position
        deleted = self._log.start - self._anchor.target_offset
        if self._remembered is not None:
            if position is None and deleted > 0:
                position = self._remembered
            elif (position or self._anchor.position) < self._remembered:
                return AheadOfEnd(position=self._remembered)
        elif position is None and deleted > 0:
            return NothingLeft(position=self._anchor.position, deleted=deleted)
        return At(position=self._anchor.position if position is None else position)

    def own_end(self, position: int) -> int:
        """Where our records end on the target, records of others behind them left out."""
        if self._correction.position is not None:
            return self._own_end
        return max(self._record.runs.target_offset_at(position), self._anchor.target_offset)

    def corrected(self, position: int, target_next_offset: int) -> Sequence[Run]:
        """The runs to write from the first of them on; none where the map says what the log has."""
        return self._correction.runs(position, target_next_offset)
