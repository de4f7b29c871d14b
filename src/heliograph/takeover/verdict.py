"""What adopting a lane comes to: where it goes on, what was copied twice, what is in doubt. Driver
only; no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from heliograph.ledger.runs import Run
from heliograph.model import LaneId, OffsetRange, TopicId, TopicPartition
from heliograph.takeover.alignment import Alignment, OffsetSyncAnchor, Repeat
from heliograph.takeover.walk import LaneLogs, Walked, last_restart
from heliograph.words import counted


class Verdict(StrEnum):
    ADOPT = "adopt"
    HELD = "already adopted"
    """Heliograph carries it already; nothing is changed."""
    NEW = "new"
    """MirrorMaker 2 has copied nothing of it; `run` begins it like any other."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFrom:
    source: int
    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneFinding:
    lane: LaneId
    target: TopicPartition
    verdict: Verdict
    stored_next: int | None = None
    """Where MirrorMaker 2 itself would go on."""
    next_source_offset: int | None = None
    target_next_offset: int | None = None
    compared_from: ComparedFrom | None = None
    """Where the comparison began; None where nothing was compared."""
    compared_records: int = 0
    """Of the target."""
    repeats: tuple[Repeat, ...] = ()
    foreign: tuple[OffsetRange, ...] = ()
    foreign_records: int = 0
    missing: tuple[OffsetRange, ...] = ()
    missing_records: int = 0
    unsure: OffsetRange | None = None
    doubts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    problem: str = ""
    runs: tuple[Run, ...] = ()
    """What was compared, by position since the lane began or goes on."""
    mapped_records: int = 0
    source_end_offset: int = 0
    source_topic_id: TopicId | None = None
    target_topic_id: TopicId | None = None
    resumed_position: int | None = None
    """The lane's position when it was handed to MirrorMaker 2; None where it never was."""

    @property
    def repeated_records(self) -> int:
        return sum(repeat.records for repeat in self.repeats)

    @property
    def beyond_stored(self) -> int | None:
        """Source offsets copied after the position was stored for the last time."""
        if self.next_source_offset is None or self.stored_next is None:
            return None
        return self.next_source_offset - self.stored_next


def refused(lane: LaneId, target: TopicPartition, problem: str) -> LaneFinding:
    return LaneFinding(lane=lane, target=target, verdict=Verdict.REFUSED, problem=problem)


def held(lane: LaneId, target: TopicPartition) -> LaneFinding:
    return LaneFinding(lane=lane, target=target, verdict=Verdict.HELD)


def impossible(logs: LaneLogs) -> str:
    """Why the logs cannot be those MirrorMaker 2 worked on; nothing where they can."""
    if logs.stored_next is not None and logs.stored_next > logs.source.end:
        return (
            f"MirrorMaker 2 stored {logs.stored_next - 1} as copied, but the source ends at "
            f"{logs.source.end}: the topic was recreated or truncated"
        )
    return ""


def judge(
    walked: Walked, target_topic_id: TopicId | None, resumed_position: int | None
) -> LaneFinding:
    """Where the lane resumes, with its doubts and notes."""
    logs, found = walked.logs, walked.alignment
    lane = logs.lane
    if logs.stored_next is None and found.next_source_offset is None and logs.resumed is None:
        notes = ("the target holds foreign records",) if walked.target_records else ()
        return LaneFinding(lane=lane.id, target=lane.target, verdict=Verdict.NEW, notes=notes)
    next_offset, doubts, problem = _next(walked)
    if problem:
        return refused(lane.id, lane.target, problem)
    older = _older(found)
    return LaneFinding(
        lane=lane.id,
        target=lane.target,
        verdict=Verdict.ADOPT,
        stored_next=logs.stored_next,
        next_source_offset=next_offset,
        target_next_offset=logs.target.end,
        compared_from=ComparedFrom(source=walked.source_from, target=walked.target_from),
        compared_records=walked.target_records,
        repeats=found.repeats,
        foreign=found.foreign,
        foreign_records=found.foreign_records,
        missing=found.missing,
        missing_records=found.missing_records,
        unsure=found.unsure,
        doubts=(*doubts, *_doubts(walked, older)),
        notes=_notes(walked, older),
        runs=found.runs,
        mapped_records=found.mapped_records,
        source_end_offset=logs.source.end,
        source_topic_id=lane.source_topic_id,
        target_topic_id=target_topic_id,
        resumed_position=resumed_position,
    )


def _next(walked: Walked) -> tuple[int, tuple[str, ...], str]:
    """The next source offset, doubts about it, and why there is none."""
    logs, found = walked.logs, walked.alignment
    if found.next_source_offset is not None:
        # Nothing that can be read lies between the two where the copy reached the position.
        floor = 0 if found.is_short or found.unsure else logs.stored_next or 0
        return max(found.next_source_offset, floor), (), ""
    if logs.resumed is not None and not walked.target_records:
        return max(logs.resumed.source_offset, logs.stored_next or 0), (), ""
    if logs.stored_next is None:
        return 0, (), "none of its target records is on the source"
    if not walked.target_records:
        return _by_syncs(logs)
    if walked.has_older_source:
        return 0, (), f"none of the {walked.target_records:,} compared records is on the source"
    return logs.stored_next, ("the source no longer has any record it copied",), ""


def _by_syncs(logs: LaneLogs) -> tuple[int, tuple[str, ...], str]:
    """The target has nothing left to compare: position and offset syncs have to be believed."""
    stored = logs.stored_next or 0
    last = (
        logs.anchors[-1] if logs.anchors else OffsetSyncAnchor(source_offset=-1, target_offset=-1)
    )
    if last.target_offset == logs.target.end - 1 and last.source_offset + 1 >= stored:
        return last.source_offset + 1, (), ""
    doubt = "the target has deleted all records, so the stored offset is trusted unchecked"
    return max(stored, last.source_offset + 1), (doubt,), ""


def _older(found: Alignment) -> int:
    """Records before the first that was found: the source has deleted what they were copied of."""
    if not found.runs:
        return 0
    first = found.runs[0].target_offset
    return sum(part.count for part in found.foreign if part.end <= first)


def _doubts(walked: Walked, older: int) -> tuple[str, ...]:
    found, said = walked.alignment, list[str]()
    if found.unsure is not None:
        said.append(
            f"records are identical, so it is unknown whether source [{found.unsure.start}, "
            f"{found.unsure.end}) was copied; up to {found.unsure.count} may be copied twice"
        )
    if found.is_short:
        said.append(
            f"the target ends before the stored offset {walked.logs.stored_next}: it lost records"
        )
    if found.missing_records and not walked.logs.is_compacted:
        said.append(
            f"{counted(found.missing_records, 'source record')} missing before the end of the copy"
        )
    others = found.foreign_records - older
    if others > 0:
        said.append(f"{counted(others, 'target record')} not on the source")
    return tuple(said)


def _notes(walked: Walked, older: int) -> tuple[str, ...]:
    said: list[str] = []
    if older:
        said.append(f"{counted(older, 'target record')} older than the first of the source")
    restart = last_restart(walked.logs)
    if restart is not None and walked.logs.anchors[restart].target_offset < walked.target_from:
        begun = walked.logs.anchors[restart]
        said.append(
            f"MirrorMaker 2 was restarted at source {begun.source_offset}, before the comparison "
            "began; --from earliest finds what it copied twice there"
        )
    if walked.is_untimed:
        said.append("compared without timestamps: one cluster stamps its own")
    return tuple(said)
