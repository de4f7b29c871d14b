"""What was told of groups as checkpoints, read back from the target. Runs on the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aiokafka.record.default_records import DefaultRecordBatch

from heliograph.broker.cluster import EARLIEST, LATEST, Cluster
from heliograph.broker.log import read_batches
from heliograph.broker.records import read_records
from heliograph.config.schema import ClusterConfig
from heliograph.errors import BrokerError, NotAuthorised, WireError
from heliograph.groups.checkpoint_plan import CheckpointKey, checkpoint_key
from heliograph.model import TopicName, TopicPartition
from heliograph.wire.mirror_records import Checkpoint, decode_checkpoint, is_checkpoint_value


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCheckpoints:
    """The last checkpoint of each group and target partition."""

    checkpoints: Mapping[CheckpointKey, Checkpoint]
    times_ms: Mapping[CheckpointKey, int]
    """When the group was seen there."""
    garbage_records: int
    """Records of the topic that are no checkpoints, and were skipped."""


NOTHING_TOLD: Final = WrittenCheckpoints(checkpoints={}, times_ms={}, garbage_records=0)


def read_checkpoints(cluster: ClusterConfig, topic: TopicName) -> WrittenCheckpoints:
    """Nothing where there is no such topic; raises `BrokerError`."""
    fold = _Fold()
    for record in read_records(cluster, topic, partitions=[0]):
        fold.add(record.key, record.value, record.timestamp_ms)
    return fold.told()


async def fetch_checkpoints(cluster: Cluster, topic: TopicName) -> WrittenCheckpoints:
    """As `read_checkpoints`, in an event loop and with a third of the work, for failover.

    Of a log that waits for compaction, an hour may hold a hundred records of each key.
    """
    partition = TopicPartition(topic=topic, partition=0)
    await cluster.refresh([topic])
    if cluster.topic(topic) is None:
        hidden = cluster.no_leader_error(partition)
        if isinstance(hidden, NotAuthorised):
            raise hidden
        return NOTHING_TOLD
    bounds = []
    for at in (EARLIEST, LATEST):
        offset = (await cluster.list_offsets([partition], at))[partition]
        if isinstance(offset, BrokerError):
            raise offset
        bounds.append(offset)
    fold = _Fold()
    async for header, batch in read_batches(cluster, partition, bounds[0], bounds[1]):
        if not header.is_control:
            for record in DefaultRecordBatch(bytes(batch)):
                fold.add(record.key, record.value, record.timestamp)
    return fold.told()


class _Fold:
    """The last value of each key, decoded when all were seen."""

    def __init__(self) -> None:
        self._last: dict[bytes, tuple[bytes, int]] = {}
        self._garbage_records = 0

    def add(self, key: bytes | None, value: bytes | None, at_ms: int) -> None:
        if key is None or (value is not None and not self._is_checkpoint(key, value)):
            self._garbage_records += 1
        elif value is None:
            # A tombstone takes back what was told before.
            self._last.pop(key, None)
        else:
            self._last[key] = (value, at_ms)

    def told(self) -> WrittenCheckpoints:
        checkpoints: dict[CheckpointKey, Checkpoint] = {}
        times_ms: dict[CheckpointKey, int] = {}
        for key, (value, at_ms) in self._last.items():
            found = decode_checkpoint(key, value)
            checkpoints[checkpoint_key(found)] = found
            times_ms[checkpoint_key(found)] = at_ms
        return WrittenCheckpoints(
            checkpoints=checkpoints, times_ms=times_ms, garbage_records=self._garbage_records
        )

    def _is_checkpoint(self, key: bytes, value: bytes) -> bool:
        if key in self._last:
            return is_checkpoint_value(value)
        try:
            decode_checkpoint(key, value)
        except WireError:
            return False
        return True
