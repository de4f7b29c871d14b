"""A failover as JSON, before and after: what `--json` prints and the API answers. Driver only."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from heliograph.failover.command import FailoverReport, Preview
from heliograph.failover.cut import CutPoint
from heliograph.failover.outputs import FailoverChoices
from heliograph.failover.shortfall import UnmirroredTail
from heliograph.groups.placement import GroupMove, NoOffset, groups_of
from heliograph.procedure.journal import Procedure


def preview_document(found: Preview) -> dict[str, Any]:
    holder = found.holder
    return {
        "flow": str(found.order.flow),
        "mode": found.order.mode,
        "state": "dry run",
        "topics": topic_results(found.losses),
        "steps": list(found.steps),
        "unfinished": None if found.unfinished is None else _procedure(found.unfinished),
        "finished": None if found.finished is None else _procedure(found.finished),
        "fence": None
        if found.fence is None
        else {"at_ms": found.fence.at_ms, "why": found.fence.why},
        "fenced_topics": {
            topic: {"at_ms": fence.at_ms, "why": fence.why}
            for topic, fence in sorted(found.topic_fences.items())
        },
        "driver": None if holder is None else f"{holder.host} pid {holder.pid}",
        "source_problem": found.source_problem or None,
        "refusal": found.refusal or None,
        "active_groups": list(found.active),
        "cut": _cut(found.order.cut_ms, found.cut),
        "groups": _groups(found.moves),
        "unplaced": [_unplaced(each) for each in found.unplaced],
        "losses": [_loss(each) for each in found.losses],
    }


def plan_of(found: Preview) -> dict[str, Any]:
    """What of a preview is decided on: whom and what it is about, and how far it has come. Offsets
    and lags are not in it: they move while somebody reads them."""
    return {
        "order": [found.order.skip_active, dataclasses.asdict(found.order.choices)],
        "steps": list(found.steps),
        "unfinished": None if found.unfinished is None else found.unfinished.id,
        "finished": None if found.finished is None else found.finished.id,
        "fence": None if found.fence is None else found.fence.at_ms,
        "fenced_topics": sorted(found.topic_fences),
        "lanes": sorted(str(each.source) for each in found.losses),
        "active_groups": list(found.active),
        "groups": sorted([each.group, str(each.source)] for each in found.moves),
        "unplaced": sorted([each.group, str(each.source)] for each in found.unplaced),
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
        "is_whole_flow": report.order.topics is None,
        "topics": topic_results(report.losses),
        "moved_groups": list(report.moved),
        "skipped_groups": list(report.skipped),
        "cut": _cut(report.order.cut_ms, report.cut),
        "groups": _groups(report.moves),
        "unplaced": [_unplaced(each) for each in report.unplaced],
        "losses": [_loss(each) for each in report.losses],
    }


def topic_results(losses: Sequence[UnmirroredTail]) -> list[dict[str, Any]]:
    """Topic by topic, as Cluster Linking answers its verbs."""
    together: defaultdict[str, list[UnmirroredTail]] = defaultdict(list)
    for loss in losses:
        together[loss.source.topic].append(loss)
    return [
        {
            "topic": topic,
            "target_topic": each[0].target.topic,
            "partitions": len(each),
            "lost_records_min": sum(loss.records_min for loss in each),
            "loss_is_known": all(loss.source_told for loss in each),
        }
        for topic, each in sorted(together.items())
    ]


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


def _cut(at_ms: int | None, points: Sequence[CutPoint]) -> dict[str, Any] | None:
    if at_ms is None:
        return None
    return {
        "at_ms": at_ms,
        "later_records": sum(point.later_records for point in points),
        "partitions": [
            {
                "topic": point.source.topic,
                "partition": point.source.partition,
                "target_topic": point.target.topic,
                "target_offset": point.offset,
                "later_records": point.later_records,
            }
            for point in points
        ],
    }


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
