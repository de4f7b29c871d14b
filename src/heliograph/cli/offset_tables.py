"""What `heliograph offsets` found out, as a table, sentences and JSON. Runs on the driver."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from rich.text import Text as Styled

from heliograph.cli.document import At, Document, Text
from heliograph.cli.fitting import FittingTable
from heliograph.cli.tables import UNKNOWN, Side, ago, new_table, number_or_unknown
from heliograph.groups.commit import CommitReport
from heliograph.groups.placement import GroupMove, GroupPlan, NoOffset, Origin, Strategy
from heliograph.groups.snapshot import FlowSnapshot
from heliograph.model import FlowId
from heliograph.words import counted

_COLUMNS: Final[tuple[tuple[str, Side], ...]] = (
    ("group", "left"),
    ("partition", "left"),
    ("source", "right"),
    ("as of", "left"),
    ("exact", "right"),
    ("target", "right"),
    ("lag", "right"),
    ("repeated", "right"),
    ("skipped", "right"),
    ("note", "left"),
)
_NOTHING: Final = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What was found out, and what was done about it."""

    flow: FlowId
    at_ms: int
    time_ms: int | None
    known: FlowSnapshot
    placing: GroupPlan
    report: CommitReport | None
    """None for a dry run."""


class _Unplaced(Document):
    group: str
    topic: str = At("source.topic")
    partition: int = At("source.partition")
    source_offset: int | None
    as_of_ms: int | None
    origin: str | None
    why: str


class _Move(Document):
    group: str
    topic: str = At("source.topic")
    partition: int = At("source.partition")
    source_offset: int | None
    target_offset: int
    exact_offset: int | None
    clamped: str | None
    lag_records: int
    repeated_records: int | None
    skipped_records: int | None
    foreign_offsets: int
    as_of_ms: int | None
    origin: str | None
    committed_offset: int | None
    metadata: str
    note: str
    target_topic: str = At("target.topic")


class _Commit(Document):
    committed: tuple[str, ...]
    unchanged: tuple[str, ...]
    active: tuple[str, ...]
    problems: dict[str, str]
    is_refused: bool


class OffsetsDocument(Document):
    flow: Text
    at_ms: int
    to: Strategy = At("placing.strategy")
    time_ms: int | None
    source_problem: str = At("known.source_problem")
    problems: tuple[str, ...] = At("known.problems")
    garbage_checkpoints: int = At("known.garbage_checkpoints")
    moves: tuple[_Move, ...] = At("placing.moves")
    unplaced: tuple[_Unplaced, ...] = At("placing.unplaced")
    commit: _Commit | None = At("report")


def headline(answer: Answer) -> str:
    moves = answer.placing.moves
    groups = {row.group for row in moves} | {row.group for row in answer.placing.unplaced}
    at = "" if answer.time_ms is None else f" {_iso(answer.time_ms)}"
    again = sum(move.repeated_records or 0 for move in moves)
    never = sum(move.skipped_records or 0 for move in moves)
    return (
        f"{answer.flow}: {counted(len(groups), 'group')}, {counted(len(moves), 'offset')} to "
        f"{answer.placing.strategy.value}{at}: {counted(again, 'record')} repeated, "
        f"{never:,} skipped"
    )


def move_table(placing: GroupPlan) -> FittingTable:
    table = new_table(_COLUMNS)
    rows: list[GroupMove | NoOffset] = [*placing.moves, *placing.unplaced]
    for row in sorted(rows, key=lambda each: (each.group, each.source)):
        stood = UNKNOWN if row.source_offset is None else f"{row.source_offset:,}"
        if isinstance(row, NoOffset):
            at = str(row.target or row.source)
            told = Styled(f"not moved: {row.why}", style="red")
            table.add_row(row.group, at, stood, _known(row), *[_NOTHING] * 5, told)
            continue
        table.add_row(
            row.group,
            str(row.target),
            stood,
            _known(row),
            number_or_unknown(row.exact_offset),
            f"{row.target_offset:,}",
            f"{row.lag_records:,}",
            number_or_unknown(row.repeated_records),
            number_or_unknown(row.skipped_records),
            told_of(row),
        )
    return table


def told_of(move: GroupMove) -> str:
    """Everything worth a sentence about one row."""
    said = [move.note]
    if move.foreign_offsets and move.exact_offset is not None:
        back = move.target_offset < move.exact_offset
        said.append(
            f"{counted(move.foreign_offsets, 'foreign offset')} {'repeated' if back else 'skipped'}"
        )
    return "; ".join(filter(None, said))


def sentences(answer: Answer, *, skip_active: bool) -> list[str]:
    """What a person must know beside the table."""
    known, report = answer.known, answer.report
    said: list[str] = []
    if known.source_problem:
        said.append(
            f"the source did not answer ({known.source_problem}); source offsets are those of the "
            "last checkpoints"
            if known.checkpoints
            else f"the source did not answer ({known.source_problem}) and the flow has no "
            "checkpoints: only the committed offsets of the target are known"
        )
    if known.garbage_checkpoints:
        said.append(f"{counted(known.garbage_checkpoints, 'checkpoint record')} could not be read")
    if report is None:
        return [*said, "nothing was written; add --commit to write the offsets"]
    if report.is_refused:
        said.append("nothing was written: stop the active groups, or skip them with --skip-active")
    if report.active:
        left = "skipped" if skip_active else "refused"
        said.append(f"{left}, active on the target: {', '.join(report.active)}")
    said += [f"problem: group {group}: {why}" for group, why in report.problems.items()]
    holder = known.view.holder
    if (
        known.flow.groups.sync_offsets_enabled
        and holder is not None
        and holder.until_ms >= answer.at_ms
    ):
        said.append(
            "the flow is running with sync.group.offsets.enabled: it moves groups that are idle on "
            "the target forward again, to their offsets on the source"
        )
    if not report.is_refused:
        said.append(
            f"{counted(len(report.committed), 'group')} written and read back, "
            f"{len(report.unchanged):,} unchanged"
        )
    return said


def _known(row: GroupMove | NoOffset) -> str:
    origin: Origin | None = row.origin
    match origin:
        case None:
            return _NOTHING
        case "source":
            return "now"
        case "checkpoint":
            return "checkpoint" if row.as_of_ms is None else f"checkpoint {ago(row.as_of_ms)}"
        case "target":
            return "target only"


def _iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat().replace("+00:00", "Z")
