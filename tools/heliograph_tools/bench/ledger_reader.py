"""Read a ledger as a slot or a failover does. Runs as a child of the bench.

Times begin after the imports; memory is the most the process ever had. Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from random import Random
from typing import Any, Final

from heliograph.broker.cluster import Cluster
from heliograph.clock import monotonic_s
from heliograph.ledger.locate import anchor_of
from heliograph.ledger.store import LedgerStore
from heliograph.ledger.translate import Exact, LaneEnd, OffsetMap
from heliograph.ledger.view import LaneRecord
from heliograph.model import ClusterAlias, TopicName, TopicPartition

LONG_LANE: Final = TopicPartition(topic=TopicName("transactions"), partition=0)
LANES_OF_A_GROUP: Final = 10


def short_lane(number: int) -> TopicPartition:
    return TopicPartition(topic=TopicName("orders"), partition=number)


async def _measure(order: dict[str, Any]) -> dict[str, Any]:
    cluster = Cluster(ClusterAlias("target"), [order["bootstrap"]], {})
    lanes = [LONG_LANE, *(short_lane(number) for number in range(order["lanes"]))]
    is_slot = order["as"] == "slot"
    # Four slots share the lanes; the one that has the long lane is measured.
    carried = lanes[: 1 + order["lanes"] // 4] if is_slot else lanes
    began_s = monotonic_s()
    store = LedgerStore(cluster, TopicName(order["topic"]), lanes=carried if is_slot else None)
    await store.catch_up()
    read_s = monotonic_s() - began_s
    records = {lane: store.view.begun_lane(lane.topic, lane.partition) for lane in carried}
    missing = [str(lane) for lane, record in records.items() if record is None]
    ends = {lane: _end(record) for lane, record in records.items() if record is not None}
    answers = [] if is_slot else _moved(order["groups"], records, ends)
    ready_s = monotonic_s() - began_s
    long = records[LONG_LANE]
    await store.close()
    cluster.close()
    return {
        "read_s": read_s,
        "ready_s": ready_s,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "missing": len(missing),
        "runs": 0 if long is None else len(long.runs),
        "moves": len(answers),
        "exact": sum(answers),
    }


def _end(record: LaneRecord) -> LaneEnd:
    """Where a lane is by its head, which is what a slot asks the map for first."""
    anchor = anchor_of(record)
    return LaneEnd(
        position=anchor.position,
        source_next_offset=record.runs.source_offset_at(anchor.position),
        target_next_offset=record.runs.target_offset_at(anchor.position),
    )


def _moved(
    groups: int,
    records: dict[TopicPartition, LaneRecord | None],
    ends: dict[TopicPartition, LaneEnd],
) -> list[bool]:
    """Each group stands somewhere in the long lane, and in some of the others."""
    random = Random(1)
    lanes = list(records)
    exact: list[bool] = []
    for _ in range(groups):
        for lane in [LONG_LANE, *random.sample(lanes[1:], min(LANES_OF_A_GROUP, len(lanes) - 1))]:
            record, end = records[lane], ends.get(lane)
            if record is not None and end is not None:
                asked = random.randrange(end.source_next_offset + 1)
                exact.append(isinstance(OffsetMap(record, end).to_target(asked), Exact))
    return exact


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(_measure(json.loads(sys.argv[1])))))
