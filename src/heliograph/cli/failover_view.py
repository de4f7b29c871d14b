"""How a failover looks, before and after, as tables and as JSON. Runs on the driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rich.text import Text

from heliograph.cli.output import remarks, results
from heliograph.cli.tables import Side, ago, new_table
from heliograph.failover.command import FailoverReport, Preview
from heliograph.failover.outputs import FailoverChoices
from heliograph.failover.shortfall import UnmirroredTail
from heliograph.groups.placement import GroupMove, NoOffset, groups_of
from heliograph.procedure.journal import Procedure

ROWS_MAX: Final = 20
"""Of a table; --json has them all."""
_GROUPS: Final[tuple[tuple[str, Side], ...]] = (
    ("group", "left"),
    ("partitions", "right"),
    ("known", "left"),
    ("lag", "right"),
    ("read again", "right"),
    ("remarks", "left"),
)
_LOSSES: Final[tuple[tuple[str, Side], ...]] = (
    ("partition", "left"),
    ("first missing", "right"),
    ("last known end", "right"),
    ("seen", "left"),
    ("lost at least", "right"),
)


def print_preview(found: Preview) -> None:
    console, order = results(), found.order
    console.print(Text(f"failover of {order.flow}, {order.mode}", style="bold"))
    if found.finished is not None:
        console.print("it was done before; there is nothing left to do")
    if found.unfinished is not None:
        done = ", ".join(step.name for step in found.unfinished.done) or "nothing"
        console.print(f"an unfinished failover is resumed; done so far: {done}", soft_wrap=True)
    console.print(f"steps: {', '.join(found.steps)}")
    holder = found.holder
    mirrored = (
        "no driver mirrors the flow"
        if holder is None
        else f"mirrored by {holder.host} (pid {holder.pid})"
    )
    answers = found.source_problem or "the source answers"
    console.print(f"{mirrored}; {answers}", soft_wrap=True)
    _print_groups(found.moves, found.unplaced)
    if order.mode == "unplanned":
        _print_losses(found.losses)
    if found.refusal:
        console.print(found.refusal, soft_wrap=True)
    remarks().print("nothing was changed")


def print_report(report: FailoverReport) -> None:
    console, order = results(), report.order
    when = "was done before" if report.was_over else "is done"
    console.print(Text(f"the {order.mode} failover of {order.flow} {when}", style="bold"))
    table = new_table([("step", "left"), ("seconds", "right"), ("what was done", "left")])
    for step in report.procedure.done:
        table.add_row(step.name, f"{step.seconds:.1f}", step.summary)
    console.print(table)
    if report.moves:
        _print_groups(report.moves, report.unplaced)
    lost, rpo = report.lost_records_min, "RPO 0: nothing was lost"
    if lost:
        _print_losses(report.losses)
        rpo = f"RPO: at least {lost:,} records"
    elif not report.is_loss_known:
        rpo = "RPO: no record is known to be lost, but the source did not say where it ended"
    console.print(f"RTO {report.seconds:.1f} s; {rpo}", soft_wrap=True)
    if report.skipped:
        console.print(f"skipped, with active members: {', '.join(report.skipped)}", soft_wrap=True)


def preview_document(found: Preview) -> dict[str, Any]:
    holder = found.holder
    return {
        "flow": str(found.order.flow),
        "mode": found.order.mode,
        "state": "dry run",
        "steps": list(found.steps),
        "unfinished": None if found.unfinished is None else _procedure(found.unfinished),
        "finished": None if found.finished is None else _procedure(found.finished),
        "fence": None
        if found.fence is None
        else {"at_ms": found.fence.at_ms, "why": found.fence.why},
        "driver": None if holder is None else f"{holder.host} pid {holder.pid}",
        "source_problem": found.source_problem or None,
        "refusal": found.refusal or None,
        "active_groups": list(found.active),
        "groups": _groups(found.moves),
        "unplaced": [_unplaced(each) for each in found.unplaced],
        "losses": [_loss(each) for each in found.losses],
    }


def report_document(report: FailoverReport) -> dict[str, Any]:
    return {
        "flow": str(report.order.flow),
        "mode": report.order.mode,
        "state": "done before" if report.was_over else "done",
        "rto_s": report.seconds,
        "rpo_records_min": report.lost_records_min,
        "rpo_is_known": report.is_loss_known,
        **_procedure(report.procedure),
        "moved_groups": list(report.moved),
        "skipped_groups": list(report.skipped),
        "groups": _groups(report.moves),
        "unplaced": [_unplaced(each) for each in report.unplaced],
        "losses": [_loss(each) for each in report.losses],
    }


def _print_groups(moves: Sequence[GroupMove], unplaced: Sequence[NoOffset]) -> None:
    table = new_table(_GROUPS)
    by_group = groups_of(moves)
    for group, each in list(by_group.items())[:ROWS_MAX]:
        known = [move.as_of_ms for move in each if move.as_of_ms is not None]
        notes = dict.fromkeys(move.note for move in each if move.note)
        table.add_row(
            group,
            str(len(each)),
            ago(min(known)) if known else "",
            f"{sum(move.lag_records for move in each):,}",
            f"{sum(move.repeated_records or 0 for move in each):,}",
            "; ".join(list(notes)[:2]),
        )
    results().print(table)
    if len(by_group) > ROWS_MAX:
        results().print(f"and {len(by_group) - ROWS_MAX:,} groups more; --json has them all")
    for miss in unplaced[:ROWS_MAX]:
        results().print(f"{miss.group} on {miss.source}: no place: {miss.why}", soft_wrap=True)
    if len(unplaced) > ROWS_MAX:
        results().print(f"and {len(unplaced) - ROWS_MAX:,} more without a place")


def _print_losses(losses: Sequence[UnmirroredTail]) -> None:
    worst = sorted(losses, key=lambda loss: loss.records_min, reverse=True)
    table = new_table(_LOSSES)
    for loss in worst[:ROWS_MAX]:
        table.add_row(
            str(loss.source),
            f"{loss.first_missing_offset:,}",
            f"{loss.known_end_offset:,}",
            "" if loss.known_at_ms is None else ago(loss.known_at_ms),
            f"{loss.records_min:,}",
        )
    results().print(table)
    if len(losses) > ROWS_MAX:
        rest = sum(loss.records_min for loss in worst[ROWS_MAX:])
        results().print(
            f"and {len(losses) - ROWS_MAX:,} partitions more with {rest:,} records; --json has all"
        )


def _procedure(procedure: Procedure[FailoverChoices]) -> dict[str, Any]:
    return {
        "course": procedure.id,
        "began_ms": procedure.began_ms,
        "ended_ms": procedure.ended_ms,
        "steps": [
            {
                "name": step.name,
                "began_ms": step.began_ms,
                "seconds": step.seconds,
                "told": step.summary,
            }
            for step in procedure.done
        ],
    }


def _groups(moves: Sequence[GroupMove]) -> list[dict[str, Any]]:
    return [
        {
            "group": group,
            "partitions": [
                {
                    "topic": move.source.topic,
                    "partition": move.source.partition,
                    "target_topic": move.target.topic,
                    "source_offset": move.source_offset,
                    "target_offset": move.target_offset,
                    "exact_offset": move.exact_offset,
                    "clamped": move.clamped,
                    "lag_records": move.lag_records,
                    "repeated_records": move.repeated_records,
                    "as_of_ms": move.as_of_ms,
                    "known_by": move.origin,
                    "note": move.note or None,
                }
                for move in each
            ],
        }
        for group, each in groups_of(moves).items()
    ]


def _unplaced(each: NoOffset) -> dict[str, Any]:
    return {
        "group": each.group,
        "topic": each.source.topic,
        "partition": each.source.partition,
        "source_offset": each.source_offset,
        "why": each.why,
    }


def _loss(loss: UnmirroredTail) -> dict[str, Any]:
    return {
        "topic": loss.source.topic,
        "partition": loss.source.partition,
        "target_topic": loss.target.topic,
        "first_missing_offset": loss.first_missing_offset,
        "first_missing_is_exact": loss.is_exact,
        "known_end_offset": loss.known_end_offset,
        "known_at_ms": loss.known_at_ms,
        "source_told": loss.source_told,
        "records_min": loss.records_min,
        "oldest_ms": loss.oldest_ms,
    }
