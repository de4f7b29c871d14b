"""What `heliograph offsets` found out, as a table, sentences and JSON. Runs on the driver."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from heliograph.cli.tables import UNKNOWN, Side, ago, counted, new_table
from heliograph.groups.commit import CommitReport
from heliograph.groups.placement import GroupMove, GroupPlan, NoOffset, Origin
from heliograph.groups.snapshot import FlowSnapshot
from heliograph.model import FlowId

_COLUMNS: Final[tuple[tuple[str, Side], ...]] = (
    ("group", "left"),
    ("partition", "left"),
    ("source", "right"),
    ("known", "left"),
    ("exact", "right"),
    ("target", "right"),
    ("lag", "right"),
    ("again", "right"),
    ("never", "right"),
    ("note", "left"),
)
_NOBODY: Final = "-"


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


def headline(answer: Answer) -> str:
    moves = answer.placing.moves
    groups = {row.group for row in moves} | {row.group for row in answer.placing.unplaced}
    at = "" if answer.time_ms is None else f" {_iso(answer.time_ms)}"
    again = sum(move.repeated_records or 0 for move in moves)
    never = sum(move.skipped_records or 0 for move in moves)
    return (
        f"{answer.flow}: {len(groups):,} groups, {len(moves):,} positions to "
        f"{answer.placing.strategy.value}{at}: {again:,} records again, {never:,} never"
    )


def move_table(placing: GroupPlan) -> Table:
    table = new_table(_COLUMNS)
    rows: list[GroupMove | NoOffset] = [*placing.moves, *placing.unplaced]
    for row in sorted(rows, key=lambda each: (each.group, each.source)):
        stood = UNKNOWN if row.source_offset is None else f"{row.source_offset:,}"
        if isinstance(row, NoOffset):
            at = str(row.target or row.source)
            told = Text(f"left alone: {row.why}", style="red")
            table.add_row(row.group, at, stood, _known(row), *[_NOBODY] * 5, told)
            continue
        table.add_row(
            row.group,
            str(row.target),
            stood,
            _known(row),
            counted(row.exact_offset),
            f"{row.target_offset:,}",
            f"{row.lag_records:,}",
            counted(row.repeated_records),
            counted(row.skipped_records),
            told_of(row),
        )
    return table


def told_of(move: GroupMove) -> str:
    """Everything worth a sentence about one row."""
    said = [move.note]
    if move.foreign_offsets and move.exact_offset is not None:
        back = move.target_offset < move.exact_offset
        said.append(f"{move.foreign_offsets:,} offsets of others {'again' if back else 'never'}")
    return "; ".join(filter(None, said))


def sentences(answer: Answer, *, skip_active: bool) -> list[str]:
    """What a person must know beside the table."""
    known, report = answer.known, answer.report
    said: list[str] = []
    if known.source_problem:
        said.append(
            f"the source was not heard ({known.source_problem}): groups stand where their "
            "checkpoints say"
            if known.checkpoints
            else f"the source was not heard ({known.source_problem}) and the flow has no "
            "checkpoints: nothing better is known than where the target's groups stand"
        )
    if known.garbage_checkpoints:
        said.append(f"{known.garbage_checkpoints:,} records are no checkpoints and were skipped")
    if report is None:
        return [*said, "nothing was written; say --commit to do it"]
    if report.is_refused:
        said.append("nothing was written: all groups must be idle on the target, or --skip-active")
    if report.active:
        left = "left alone" if skip_active else "refused"
        said.append(f"active on the target and {left}: {', '.join(report.active)}")
    said += [f"problem: group {group}: {why}" for group, why in report.problems.items()]
    holder = known.view.holder
    if (
        known.flow.groups.sync_offsets_enabled
        and holder is not None
        and holder.until_ms >= answer.at_ms
    ):
        said.append(
            "the flow is being mirrored with sync.group.offsets.enabled: groups that are idle on "
            "the target are moved forward again to where they stand on the source"
        )
    if not report.is_refused:
        said.append(
            f"{len(report.committed):,} groups were written and read back, "
            f"{len(report.unchanged):,} stood there before"
        )
    return said


def as_document(answer: Answer) -> dict[str, Any]:
    known, report = answer.known, answer.report
    return {
        "flow": str(answer.flow),
        "at_ms": answer.at_ms,
        "to": answer.placing.strategy.value,
        "time_ms": answer.time_ms,
        "source_problem": known.source_problem,
        "problems": list(known.problems),
        "garbage_checkpoints": known.garbage_checkpoints,
        "moves": [
            {**_partition_document(move), "target_topic": move.target.topic}
            for move in answer.placing.moves
        ],
        "unplaced": [_partition_document(row) for row in answer.placing.unplaced],
        "commit": None if report is None else asdict(report),
    }


def _partition_document(row: GroupMove | NoOffset) -> dict[str, Any]:
    return {
        "group": row.group,
        "topic": row.source.topic,
        "partition": row.source.partition,
        **{k: v for k, v in asdict(row).items() if k not in ("group", "source", "target")},
    }


def _known(row: GroupMove | NoOffset) -> str:
    origin: Origin | None = row.origin
    match origin:
        case None:
            return _NOBODY
        case "source":
            return "now"
        case "checkpoint":
            return "checkpoint" if row.as_of_ms is None else f"checkpoint {ago(row.as_of_ms)}"
        case "target":
            return "target only"


def _iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat().replace("+00:00", "Z")
