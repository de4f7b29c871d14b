"""Which lanes a flow has: one per source partition with a place to go. No I/O; runs anywhere."""

from __future__ import annotations

from heliograph.broker.view import ClusterView
from heliograph.config.schema import FlowConfig
from heliograph.model import Lane, LaneId, TopicPartition
from heliograph.topics.selection import Selection


def plan_lanes(
    flow: FlowConfig, selection: Selection, source: ClusterView, target: ClusterView
) -> tuple[Lane, ...]:
    """The lanes that can be carried as things stand, in order of topic and partition.

    A partition the target does not have yet is left out rather than failed: it comes with the
    first plan made after the target was prepared.
    """
    lanes: list[Lane] = []
    for source_name, target_name in selection.mirrored:
        read, written = source.topics.get(source_name), target.topics.get(target_name)
        if read is None or written is None:
            continue
        present = {partition.partition for partition in written.partitions}
        lanes.extend(
            Lane(
                id=LaneId(
                    flow=flow.id,
                    source=TopicPartition(topic=source_name, partition=partition.partition),
                ),
                target=TopicPartition(topic=target_name, partition=partition.partition),
                source_topic_id=read.id,
                target_topic_id=written.id,
                start_at=flow.start_at,
                offsets=flow.offsets,
                on_existing=flow.on_existing,
                read_committed=flow.read_committed,
            )
            for partition in read.partitions
            if partition.partition in present
        )
    return tuple(lanes)
