"""How a failover looks, before and after, as tables and as JSON. Runs on the driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.text import Text

from heliograph.cli.output import remarks, results
from heliograph.cli.tables import Side, ago, new_table
from heliograph.failover.command import FailoverOrder, FailoverReport, Preview
from heliograph.failover.cut import CutPoint, cut_words
from heliograph.failover.shortfall import UnmirroredTail
from heliograph.groups.placement import GroupMove, NoOffset, groups_of

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
_CUT: Final[tuple[tuple[str, Side], ...]] = (
    ("partition", "left"),
    ("offset at the cut", "right"),
    ("later records", "right"),
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
    console.print(Text(f"failover of {_what(order)}, {order.mode}", style="bold"))
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
    _print_cut(order.cut_ms, found.cut)
    if order.mode == "unplanned":
        _print_losses(found.losses)
    if found.refusal:
        console.print(found.refusal, soft_wrap=True)
    remarks().print("nothing was changed")


def print_report(report: FailoverReport) -> None:
    console, order = results(), report.order
    when = "was done before" if report.was_over else "is done"
    console.print(Text(f"the {order.mode} failover of {_what(order)} {when}", style="bold"))
    table = new_table([("step", "left"), ("seconds", "right"), ("what was done", "left")])
    for step in report.procedure.done:
        table.add_row(step.name, f"{step.seconds:.1f}", step.summary)
    console.print(table)
    if report.moves:
        _print_groups(report.moves, report.unplaced)
    _print_cut(order.cut_ms, report.cut)
    lost, rpo = report.lost_records_min, "RPO 0: nothing was lost"
    if lost:
        _print_losses(report.losses)
        rpo = f"RPO: at least {lost:,} records"
    elif not report.is_loss_known:
        rpo = "RPO: no record is known to be lost, but the source did not say where it ended"
    console.print(f"RTO {report.seconds:.1f} s; {rpo}", soft_wrap=True)
    if report.skipped:
        console.print(f"skipped, with active members: {', '.join(report.skipped)}", soft_wrap=True)


def _what(order: FailoverOrder) -> str:
    return f"{', '.join(order.topics)} of {order.flow}" if order.topics else str(order.flow)


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


def _print_cut(at_ms: int | None, points: Sequence[CutPoint]) -> None:
    if at_ms is None:
        return
    table = new_table(_CUT)
    most = sorted(points, key=lambda point: point.later_records, reverse=True)
    for point in most[:ROWS_MAX]:
        table.add_row(str(point.target), f"{point.offset:,}", f"{point.later_records:,}")
    results().print(table)
    if len(points) > ROWS_MAX:
        results().print(f"and {len(points) - ROWS_MAX:,} partitions more; --json has them all")
    later = sum(point.later_records for point in points)
    results().print(
        f"cut at {cut_words(at_ms)}: {later:,} later records stay in the log, and groups read them "
        "again or for the first time",
        soft_wrap=True,
    )


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
