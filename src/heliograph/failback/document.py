"""A failback as JSON, before and after: what `--json` prints and the API answers. Driver only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from heliograph.failback.command import FailbackReport, Preview
from heliograph.failback.divergence import PartitionDivergence, Resolution, TopicDivergence
from heliograph.model import TopicName


def preview_document(found: Preview) -> dict[str, Any]:
    return {
        "flow": str(found.order.flow),
        "state": "finished" if found.finished else "preview",
        "choice": found.order.choice.value,
        "renaming": found.is_renaming,
        "unfinished_steps": None
        if found.unfinished is None
        else [step.name for step in found.unfinished.done],
        "topics": _topics_document(found.divergences, found.resolutions),
    }


def plan_of(found: Preview) -> dict[str, Any]:
    """What of a preview is decided on: the topics, and what is done to each. Offsets and counts are
    not in it: they move while somebody reads them."""
    return {
        "order": [found.order.may_delete, dataclasses.asdict(found.order.choices)],
        "unfinished": None
        if found.unfinished is None
        else [found.unfinished.id, *(step.name for step in found.unfinished.done)],
        "finished": None if found.finished is None else found.finished.id,
        "topics": [
            [
                each.topic,
                None if (what := found.resolutions[each.topic]) is None else what.name,
                each.has_diverged,
                each.source_topic_id,
                each.target_topic_id,
                len(each.partitions),
            ]
            for each in found.divergences
        ],
    }


def report_document(report: FailbackReport) -> dict[str, Any]:
    procedure = report.procedure
    return {
        "flow": str(report.order.flow),
        "state": "finished before" if report.was_over else "finished",
        "course": procedure.id,
        "choice": procedure.choices.how.value,
        "renaming": report.is_renaming,
        "steps": [
            {
                "step": step.name,
                "seconds": step.seconds,
                "told": step.summary,
                "facts": dict(step.outputs),
            }
            for step in procedure.done
        ],
        "topics": _topics_document(report.divergences, report.resolutions),
        "next": report.next_line,
    }


def _topics_document(
    divergences: Sequence[TopicDivergence], resolutions: Mapping[TopicName, Resolution | None]
) -> list[dict[str, Any]]:
    return [
        {
            "topic": each.topic,
            "treatment": None if (what := resolutions[each.topic]) is None else what.name.lower(),
            "parted": each.has_diverged,
            "recreated": each.is_recreated,
            "on_source": each.source_topic_id is not None,
            "on_target": each.target_topic_id is not None,
            "unmirrored_records": each.unmirrored_records,
            "source_offsets": each.source_records,
            "expired_records": each.expired_records,
            "partitions": [_partition_document(partition) for partition in each.partitions],
        }
        for each in divergences
    ]


def _partition_document(each: PartitionDivergence) -> dict[str, Any]:
    return {
        "partition": each.partition,
        "position": each.position,
        "source_next_offset": each.source_offset,
        "target_next_offset": each.target_offset,
        "source": None if each.source_end is None else [each.source_start, each.source_end],
        "target": None if each.target_end is None else [each.target_start, each.target_end],
        "unmirrored_records": each.unmirrored_records,
        "expired_records": each.expired_records,
        "identical": each.is_identical,
        "note": each.note or None,
    }
