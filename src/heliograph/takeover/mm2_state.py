"""What a MirrorMaker 2 has left on the clusters: positions, offset syncs, workers. Driver only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from heliograph.broker.records import read_records
from heliograph.compat.own_topics import offset_syncs_of
from heliograph.config.schema import ClusterConfig, FlowConfig, MirrorConfig
from heliograph.errors import WireError
from heliograph.model import FlowId, TopicName, TopicPartition
from heliograph.takeover.alignment import OffsetSyncAnchor
from heliograph.takeover.connect_group import connect_members
from heliograph.takeover.connect_offsets import (
    SOURCE_CONNECTOR,
    StoredOffsetKey,
    decode_position,
    decode_position_key,
    strimzi_connector,
)
from heliograph.topics.naming import source_alias
from heliograph.wire.mirror_records import decode_offset_sync

_READ_S_MAX: Final = 600.0
_READ_COMMITTED: Final = "read_committed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mm2State:
    """Of one flow."""

    connector: str
    """The name under which the positions were found, or would be looked for."""
    positions: Mapping[TopicPartition, int]
    """The last source offset MirrorMaker 2 stored as mirrored."""
    anchors: Mapping[TopicPartition, tuple[OffsetSyncAnchor, ...]]
    """Its offset syncs, oldest first."""
    offsets_topic: TopicName
    garbage_records: int
    """Records of its topics that mean nothing."""


def connect_group(flow: FlowConfig, target: ClusterConfig) -> str:
    return target.worker.group_id or f"{flow.id.source}-mm2"


def offsets_topic(flow: FlowConfig, target: ClusterConfig) -> TopicName:
    """Where MirrorMaker 2 keeps the positions of this flow, on the target."""
    own = flow.connector.offsets_storage_topic or target.worker.offset_storage_topic
    return TopicName(own or f"mm2-offsets.{flow.id.source}.internal")


def reads_committed(flow: FlowConfig) -> bool:
    """Whether MirrorMaker 2 leaves out aborted transactions with this file; by default it does
    not."""
    return flow.clients.source_consumer.get("isolation.level") == _READ_COMMITTED


async def running_workers(config: MirrorConfig, flow: FlowId) -> tuple[str, ...]:
    """Members of the flow's Connect group: a MirrorMaker 2 that runs. Raises `BrokerError`."""
    target = config.target_of(flow)
    return await connect_members(target, connect_group(config.flow(flow), target))


def read_mm2_state(config: MirrorConfig, flow_id: FlowId) -> Mm2State:
    """Positions and offset syncs as they are now; raises `BrokerError`."""
    flow, target = config.flow(flow_id), config.target_of(flow_id)
    connector, positions, garbage = _read_positions(flow, target)
    anchors, more_garbage = _read_anchors(config, flow)
    return Mm2State(
        connector=connector,
        positions=positions,
        anchors=anchors,
        offsets_topic=offsets_topic(flow, target),
        garbage_records=garbage + more_garbage,
    )


def stored_offsets(flow: FlowConfig, target: ClusterConfig) -> Mapping[TopicPartition, int]:
    """The last source offsets MirrorMaker 2 stored as mirrored; raises `BrokerError`."""
    _, positions, _ = _read_positions(flow, target)
    return positions


def _read_positions(
    flow: FlowConfig, target: ClusterConfig
) -> tuple[str, Mapping[TopicPartition, int], int]:
    """The connector they belong to, the positions, and how many records mean nothing."""
    by_connector: dict[str, dict[TopicPartition, int]] = {}
    garbage = 0
    for record in read_records(target, offsets_topic(flow, target), timeout_s=_READ_S_MAX):
        try:
            key = decode_position_key(record.key)
            last_offset = decode_position(record.value)
        except WireError:
            # Heartbeats and checkpoints have positions as well; these are no garbage.
            garbage += not _is_of_connect(record.key)
            continue
        if key.cluster == source_alias(flow):
            _note(by_connector.setdefault(key.connector, {}), key, last_offset)
    connector = _connector(flow, by_connector)
    return connector, by_connector.get(connector, {}), garbage


def _is_of_connect(key: bytes | None) -> bool:
    return key is not None and key.startswith(b"[") and key.endswith(b"}]")


def _note(
    positions: dict[TopicPartition, int], key: StoredOffsetKey, last_offset: int | None
) -> None:
    at = TopicPartition(topic=key.topic, partition=key.partition)
    if last_offset is None:
        positions.pop(at, None)
    else:
        positions[at] = last_offset


def _connector(flow: FlowConfig, found: Mapping[str, object]) -> str:
    """The name the file gives; else the dedicated MirrorMaker 2's, unless only Strimzi's is
    there."""
    if flow.connector.name is not None:
        return flow.connector.name
    operators = strimzi_connector(flow.id)
    if SOURCE_CONNECTOR not in found and operators in found:
        return operators
    return SOURCE_CONNECTOR


def _read_anchors(
    config: MirrorConfig, flow: FlowConfig
) -> tuple[Mapping[TopicPartition, tuple[OffsetSyncAnchor, ...]], int]:
    on_source = flow.offset_syncs.location == "source"
    cluster = config.source_of(flow.id) if on_source else config.target_of(flow.id)
    topic = offset_syncs_of(flow).name
    anchors: dict[TopicPartition, list[OffsetSyncAnchor]] = {}
    garbage = 0
    for record in read_records(cluster, topic, timeout_s=_READ_S_MAX):
        if record.value is None:
            continue
        try:
            sync = decode_offset_sync(record.key, record.value)
        except WireError:
            garbage += 1
            continue
        at = TopicPartition(topic=sync.topic, partition=sync.partition)
        anchor = OffsetSyncAnchor(
            source_offset=sync.upstream_offset, target_offset=sync.downstream_offset
        )
        anchors.setdefault(at, []).append(anchor)
    return {at: tuple(some) for at, some in anchors.items()}, garbage
