"""A fetch that was under way when its lane went back must not look like a gap in the source."""

from __future__ import annotations

import asyncio
import struct

from heliograph.broker.cluster import Cluster
from heliograph.config.clients import aiokafka_settings
from heliograph.config.schema import ClusterConfig
from heliograph.copy.chunk import LaneCursor
from heliograph.copy.fetch_streams import FetchStreams, fetch_pace
from heliograph.copy.fetching import FetchStream
from heliograph.copy.flow import FetchLimits, Flow
from heliograph.copy.lane import CarriedLane
from heliograph.copy.phases import Running
from heliograph.copy.room import Room
from heliograph.errors import MirrorError
from heliograph.ledger.entries import ledger_topic
from heliograph.ledger.store import LedgerStore
from heliograph.model import ClusterAlias, FlowId, Lane, LaneId, TopicName, TopicPartition
from heliograph.wire.fetch import FetchedPartition
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.mirror import lasting_topic
from tests.kit.records import numbered, produce

_ALIAS = ClusterAlias("A")
_UNDER_WAY_S = 0.3


def test_an_answer_to_a_fetch_from_before_a_lane_went_back_is_not_used(
    pair: dict[str, LocalCluster], topic: TopicNames
) -> None:
    name = lasting_topic(pair["A"], topic("fetching-back"))
    produce(pair["A"], name, numbered(4))
    produce(pair["A"], name, numbered(6, start=4))

    first_offsets = asyncio.run(_go_back_during_a_fetch(pair["A"], TopicName(name)))

    assert first_offsets[0] == 4


async def _go_back_during_a_fetch(source: LocalCluster, name: TopicName) -> list[int]:
    """The first offset of each answer after a lane that waited at 10 went back to 4."""
    config = ClusterConfig(alias=_ALIAS, bootstrap_servers=tuple(source.bootstrap.split(",")))
    cluster = Cluster(_ALIAS, config.bootstrap_servers, aiokafka_settings(config))
    await cluster.refresh([name])
    lane = _lane(cluster, name)
    first_offsets: list[int] = []
    answered = asyncio.Event()

    class Reports:
        def fetched(self, _: CarriedLane, running: Running, answer: FetchedPartition) -> None:
            if len(answer.records):
                first_offsets.append(struct.unpack_from(">q", answer.records)[0])
                answered.set()

        def failed(self, _: CarriedLane, error: MirrorError) -> None:
            raise error

    running: list[asyncio.Task[None]] = []
    limits = lane.flow.limits

    def make(index: int, group: FetchStreams) -> FetchStream:
        return FetchStream(
            cluster,
            0,
            index=index,
            group=group,
            target=lane.spec.id.flow.target,
            read_committed=True,
            limits=limits,
            reports=Reports(),
            room=Room(1 << 28),
        )

    stream = FetchStreams(
        fetch_pace(cluster.round_trip(0), limits),
        limits,
        make,
        lambda work: running.append(asyncio.create_task(work)),
    )
    _stand_at(lane, 10)
    stream.add(lane, 0)
    await asyncio.sleep(_UNDER_WAY_S)
    stream.remove(lane)
    _stand_at(lane, 4)
    stream.add(lane, 0)
    await asyncio.to_thread(produce, source, name, numbered(1, start=100), linger_ms=0)
    await asyncio.wait_for(answered.wait(), 30)
    for task in running:
        task.cancel()
    cluster.close()
    return first_offsets


def _lane(cluster: Cluster, name: TopicName) -> CarriedLane:
    flow, place = FlowId(source=_ALIAS, target=_ALIAS), TopicPartition(topic=name, partition=0)
    found = cluster.topic(name)
    assert found is not None
    spec = Lane(id=LaneId(flow=flow, source=place), target=place, source_topic_id=found.id)
    ledger = LedgerStore(cluster, ledger_topic(_ALIAS))
    return CarriedLane(spec, Flow(flow, cluster, cluster, ledger, FetchLimits()))


def _stand_at(lane: CarriedLane, offset: int) -> None:
    topic_id = lane.spec.source_topic_id
    assert topic_id is not None
    cursor = LaneCursor(
        next_offset=offset, position=offset, target_offset=offset, source_expected=offset
    )
    lane.enter(lane.run_from(cursor, identical=True, target_topic_id=topic_id))
