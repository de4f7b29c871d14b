"""One flow over real clusters whose groups are followed; what was mirrored is stood in for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from heliograph.broker.clients import Clients
from heliograph.broker.groups import GroupAdmin
from heliograph.broker.records import read_records
from heliograph.compat.checkpoints import GroupFollower
from heliograph.config.schema import ClusterConfig, FlowConfig, MirrorConfig
from heliograph.config.sections import CheckpointsConfig, GroupsConfig
from heliograph.ledger.flow_map import Asked, LaneAt, Lanes, Progress
from heliograph.ledger.runs import Run, Runs
from heliograph.ledger.translate import LaneEnd, Translated, translated
from heliograph.model import FlowId, TopicName, TopicPartition
from heliograph.wire.mirror_records import decode_checkpoint
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.groups import commit, committed
from tests.kit.maps import map_of
from tests.kit.topics import wait_until

SHIFT = 5
"""Every lane here began at source offset 0 and target offset 5."""


@dataclass(slots=True)
class StandInMap:
    """A flow whose lanes have mirrored as many records as a test says."""

    flow: FlowId
    mirrored: dict[TopicPartition, int] = field(default_factory=dict)

    def moved(self, since: Progress) -> tuple[Lanes, Progress]:
        return self._lanes(), since

    def _lanes(self) -> Lanes:
        return {
            source: LaneAt(
                source=source,
                target=TopicPartition(
                    topic=TopicName(f"{self.flow.source}.{source.topic}"),
                    partition=source.partition,
                ),
                position=records,
                last_source_offset=records - 1 if records else None,
                last_target_offset=records - 1 + SHIFT if records else None,
            )
            for source, records in self.mirrored.items()
        }

    def translate(self, asked: Iterable[Asked]) -> tuple[Lanes, Mapping[Asked, Translated]]:
        runs = Runs([Run(position=0, source_offset=0, target_offset=SHIFT)])
        return self._lanes(), {
            (source, offset): found
            for source, offset in asked
            if source in self.mirrored
            and (found := self._answer(runs, self.mirrored[source], offset)) is not None
        }

    @staticmethod
    def _answer(runs: Runs, records: int, offset: int) -> Translated | None:
        end = LaneEnd(
            position=records, source_next_offset=records, target_next_offset=records + SHIFT
        )
        return translated(map_of(runs, end).to_target(offset))


@dataclass(slots=True)
class Scene:
    """A flow under aliases of its own, so that each test has its own checkpoints."""

    source: LocalCluster
    target: LocalCluster
    flow: FlowConfig
    clients: Clients
    map: StandInMap
    group: str
    orders: str

    @property
    def mirrored_orders(self) -> str:
        return f"{self.flow.id.source}.{self.orders}"

    @property
    def target_config(self) -> ClusterConfig:
        return self.clients.target(self.flow.id)

    def follower(self) -> GroupFollower:
        """As a driver that starts now has it."""
        return GroupFollower(self.flow, self.clients, self.map)

    def mirror(self, records: int, partition: int = 0) -> None:
        self.map.mirrored[TopicPartition(topic=TopicName(self.orders), partition=partition)] = (
            records
        )

    def at_source(self, offset: int, partition: int = 0) -> None:
        commit(self.source, self.group, self.orders, {partition: offset})

    def at_target(self) -> dict[int, int]:
        return committed(self.target, self.group, self.mirrored_orders)

    def told(self, follower: GroupFollower) -> list[tuple[str, str, int, int, int]]:
        """Every checkpoint in the topic, oldest first."""
        found = [
            decode_checkpoint(record.key, record.value)
            for record in read_records(self.target_config, follower.checkpoints_topic)
        ]
        return [
            (each.group, each.topic, each.partition, each.upstream_offset, each.downstream_offset)
            for each in found
        ]

    def leave(self, groups: GroupAdmin) -> None:
        wait_until(lambda: groups.describe([self.group])[self.group].is_idle, "members left")


def scene_of(
    flow_id: FlowId,
    source: LocalCluster,
    target: LocalCluster,
    *,
    group: str,
    orders: str,
    target_config: ClusterConfig | None = None,
) -> Scene:
    """`orders` and its copy are there already; groups whose ids begin with `group` are followed."""
    flow = FlowConfig(
        id=flow_id,
        enabled=True,
        topics=(f"{orders}.*",),
        groups=GroupsConfig(include=(f"{group}.*",), sync_offsets_enabled=True),
        checkpoints=CheckpointsConfig(replication_factor=1),
    )
    clusters = {
        flow_id.source: ClusterConfig(alias=flow_id.source, bootstrap_servers=(source.bootstrap,)),
        flow_id.target: target_config
        or ClusterConfig(alias=flow_id.target, bootstrap_servers=(target.bootstrap,)),
    }
    return Scene(
        source=source,
        target=target,
        flow=flow,
        clients=Clients(MirrorConfig(clusters=clusters, pairs=(flow,))),
        map=StandInMap(flow_id),
        group=group,
        orders=orders,
    )


def with_groups(scene: Scene, **groups: Any) -> FlowConfig:
    changed = scene.flow.groups.model_copy(update=groups)
    return scene.flow.model_copy(update={"groups": changed})
