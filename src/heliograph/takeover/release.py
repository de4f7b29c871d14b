"""Hand flows back to MirrorMaker 2: its positions and offset syncs, written exactly. Driver only.

MirrorMaker 2 goes on one after the offset in Connect's offsets topic, so the offset before the
lane's next one is written there, under the bytes that Connect looks for. The lanes' heads in the
ledger then say `released`: from here on the target grows without Heliograph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.clients import Clients
from heliograph.broker.cluster import LATEST
from heliograph.broker.records import Record
from heliograph.compat.internal_topics import InternalTopic
from heliograph.compat.own_topics import offset_syncs_of
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.errors import BrokerError, BrokerUnreachable, MirrorError
from heliograph.ledger.access import (
    OpenLedger,
    lease_ledger,
    open_ledger,
    require_unled,
)
from heliograph.ledger.entries import RELEASED, ledger_topic
from heliograph.ledger.heads import is_released, settled_head
from heliograph.ledger.locations import LaneLocation, all_topics, locate_lanes
from heliograph.model import FlowId, LaneId, TopicName, TopicPartition
from heliograph.takeover.connect_offsets import (
    StoredOffsetKey,
    encode_position,
    encode_position_key,
    partition_of,
)
from heliograph.takeover.mm2_state import (
    Mm2State,
    offsets_topic,
    read_mm2_state,
    reads_committed,
    running_workers,
)
from heliograph.topics.naming import source_alias
from heliograph.wire.mirror_records import OffsetSync, encode_offset_sync


class ReleaseAction(StrEnum):
    RELEASE = "release"
    DONE = "already released"
    """MirrorMaker 2 has its position; it may have gone on since, so nothing is written again."""
    EMPTY = "nothing mirrored"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRelease:
    lane: LaneId
    target: TopicPartition
    action: ReleaseAction
    next_source_offset: int
    stored_next: int | None
    """Where MirrorMaker 2 would have gone on otherwise."""
    sync: OffsetSync | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRelease:
    flow: FlowId
    offsets_topic: str = ""
    connector: str = ""
    lanes: tuple[LaneRelease, ...] = ()
    notes: tuple[str, ...] = ()
    problem: str = ""
    written: bool = False

    @property
    def releasable(self) -> tuple[LaneRelease, ...]:
        return tuple(lane for lane in self.lanes if lane.action is ReleaseAction.RELEASE)

    @property
    def has_problems(self) -> bool:
        return bool(self.problem) or any(lane.problem for lane in self.lanes)


async def release(config: MirrorConfig, flow_id: FlowId, *, write: bool) -> FlowRelease:
    """What a release comes to, done if `write`; what stands in the way is a value."""
    try:
        return await _release(config, config.flow(flow_id), write=write)
    except MirrorError as exc:
        return FlowRelease(flow=flow_id, problem=str(exc))


async def _release(config: MirrorConfig, flow: FlowConfig, *, write: bool) -> FlowRelease:
    workers = await running_workers(config, flow.id)
    if workers:
        raise MirrorError(
            f"MirrorMaker 2 is running; its workers: {', '.join(workers)}; stop it first"
        )
    topic = ledger_topic(flow.id.source)
    if topic not in ClusterAdmin(config.target_of(flow.id)).describe_topics([topic]):
        raise MirrorError(f"{flow.id} has no ledger: Heliograph has mirrored nothing")
    mm2 = read_mm2_state(config, flow.id)
    async with lease_ledger(config, flow.id) if write else open_ledger(config, flow.id) as ledger:
        locations = await locate_lanes(flow, ledger.target, ledger.store, all_topics())
        if not write:
            await require_unled(ledger.store, flow.id)
        ends = await ledger.target.list_offsets([location.target for location in locations], LATEST)
        lanes = tuple(_lane(location, mm2, ends.get(location.target)) for location in locations)
        found = FlowRelease(
            flow=flow.id,
            offsets_topic=mm2.offsets_topic,
            connector=mm2.connector,
            lanes=lanes,
            notes=tuple(_notes(config, flow)),
            written=write,
        )
        if write and found.releasable:
            await _write(
                config, flow, ledger, found, {location.lane: location for location in locations}
            )
    return found


def _lane(location: LaneLocation, mm2: Mm2State, end: int | BrokerError | None) -> LaneRelease:
    last = mm2.positions.get(location.lane.source)
    action, problem = _action(location, end, is_stored=last is not None)
    return LaneRelease(
        lane=location.lane,
        target=location.target,
        action=action,
        next_source_offset=location.source_next_offset,
        stored_next=None if last is None else last + 1,
        sync=_sync(location),
        problem=problem,
    )


def _action(
    location: LaneLocation, end: int | BrokerError | None, *, is_stored: bool
) -> tuple[ReleaseAction, str]:
    if is_released(location.record) and is_stored:
        return ReleaseAction.DONE, ""
    if not isinstance(end, int):
        return ReleaseAction.REFUSED, str(end or "the target partition does not exist any more")
    if not location.exact and end != location.target_next_offset:
        return ReleaseAction.REFUSED, "its exact position is unknown; run the mirror once first"
    return (ReleaseAction.RELEASE if location.source_next_offset else ReleaseAction.EMPTY), ""


def _sync(location: LaneLocation) -> OffsetSync | None:
    """The last record that was mirrored, on both sides."""
    runs = location.record.runs
    if location.position <= runs.source_restart_position:
        return None
    return OffsetSync(
        topic=location.lane.source.topic,
        partition=location.lane.source.partition,
        upstream_offset=runs.source_offset_at(location.position - 1),
        downstream_offset=runs.target_offset_at(location.position - 1),
    )


def _notes(config: MirrorConfig, flow: FlowConfig) -> Iterable[str]:
    if flow.read_committed and not reads_committed(flow):
        yield (
            "MirrorMaker 2 will copy records of aborted transactions: its consumer reads "
            f"uncommitted unless {flow.id.source}.consumer.isolation.level = read_committed"
        )
    if config.target_of(flow.id).worker.exactly_once_source_support != "enabled":
        yield "MirrorMaker 2 may copy records twice after a crash; Heliograph does not"


async def _write(
    config: MirrorConfig,
    flow: FlowConfig,
    ledger: OpenLedger,
    found: FlowRelease,
    locations: Mapping[LaneId, LaneLocation],
) -> None:
    """Positions first: until the heads say `released`, a run would go on as if nothing were."""
    clients = Clients(config)
    try:
        _write_positions(config, flow, clients, found)
        syncs = [lane.sync for lane in found.releasable if lane.sync is not None]
        if flow.offset_syncs.enabled and syncs:
            at = clients.offset_syncs(flow.id)
            topic = InternalTopic(clients, at, offset_syncs_of(flow))
            pairs = [encode_offset_sync(sync) for sync in syncs]
            topic.write([Record(key=key, value=value) for key, value in pairs])
    finally:
        clients.close()
    heads = [
        settled_head(
            locations[lane.lane],
            locations[lane.lane].record.head,
            state=RELEASED,
            detail="handed to MirrorMaker 2; `heliograph adopt` takes it over again",
        )
        for lane in found.lanes
        if lane.action in (ReleaseAction.RELEASE, ReleaseAction.EMPTY)
    ]
    await ledger.store.write(heads)


def _write_positions(
    config: MirrorConfig, flow: FlowConfig, clients: Clients, found: FlowRelease
) -> None:
    target = config.target_of(flow.id)
    topic, partitions = offsets_topic(flow, target), target.worker.offset_storage_partitions
    admin = clients.admin(target)
    admin.ensure_compacted_topic(
        topic,
        partitions=partitions,
        replication_factor=target.worker.offset_storage_replication_factor,
        factor_key="offset.storage.replication.factor",
    )
    count = _partition_count(admin, topic)
    records: list[Record] = []
    for lane in found.releasable:
        key = encode_position_key(
            StoredOffsetKey(
                connector=found.connector,
                cluster=source_alias(flow),
                topic=lane.lane.source.topic,
                partition=lane.lane.source.partition,
            )
        )
        value = encode_position(lane.next_source_offset - 1)
        records.append(Record(key=key, value=value, partition=partition_of(key, count)))
    clients.writer(target).write(topic, records)


def _partition_count(admin: ClusterAdmin, topic: TopicName) -> int:
    shown = admin.await_partitions({topic: 1})[topic]
    if isinstance(shown, BrokerError):
        raise shown
    found = admin.describe_topics([topic]).get(topic)
    if found is None:
        raise BrokerUnreachable(f"cluster {admin.alias}: topic {topic} was deleted meanwhile")
    return found.partition_count
