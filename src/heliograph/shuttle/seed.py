"""Make an empty target partition begin at the source's own offset (`offsets = preserve`). Runs on
executors.

Filler records are appended until the log ends where the source starts, then deleted. A zstd batch
of 100,000 empty
records is 59 KB on the wire; a broker takes millions of such offsets a second.
"""

from __future__ import annotations

import datetime
from typing import Final

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from kio.schema.delete_records.v2 import request as delete_request
from kio.schema.delete_records.v2 import response as delete_response

from heliograph.broker.cluster import Cluster
from heliograph.broker.codes import NONE, broker_error
from heliograph.clock import now_ms
from heliograph.errors import BrokerError, LeaderMoved
from heliograph.model import TopicPartition
from heliograph.wire.batch import SEQUENCES, restamp
from heliograph.wire.produce import (
    PRODUCE_KEY,
    PRODUCE_VERSION_MAX,
    PRODUCE_VERSION_MIN,
    parse_produce_answer,
    produce_request,
)

FILLER_RECORDS: Final = 100_000
_ZSTD: Final = 4
_POLICY_VIOLATION: Final = 44
_TIMEOUT_MS: Final = 30_000


async def seed(cluster: Cluster, partition: TopicPartition, end: int, wanted: int) -> int:
    """Append filler from `end` to `wanted` and delete it; returns where the log ends then.

    A topic that is only compacted refuses DeleteRecords, and the filler would stay for ever: asked
    before the
    first record is written, such a partition is left as it is and its lane is mapped.
    A producer id of its own guards each run against its own lost answers; should two mirrors seed
    at once, the
    log may end past `wanted`, and the lane is mapped too.
    """
    if not await _may_delete(cluster, partition):
        return end
    producer_id, epoch = await cluster.new_producer_id()
    start = end
    filler = _filler(FILLER_RECORDS)
    while end < wanted:
        count = min(FILLER_RECORDS, wanted - end)
        batch = filler if count == FILLER_RECORDS else _filler(count)
        restamp(
            memoryview(batch),
            producer_id=producer_id,
            producer_epoch=epoch,
            sequence=(end - start) % SEQUENCES,
        )
        end = await _append(cluster, partition, batch) + count
    await _delete_before(cluster, partition, end)
    return end


async def _may_delete(cluster: Cluster, partition: TopicPartition) -> bool:
    try:
        await _delete_before(cluster, partition, 0)
    except _PolicyViolation:
        return False
    return True


class _PolicyViolation(BrokerError):
    """The topic is only compacted."""


def _filler(count: int) -> bytearray:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=_ZSTD,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    at_ms = now_ms()
    for index in range(count):
        builder.append(index, at_ms, b"", None, [])
    return bytearray(builder.build())


async def _append(cluster: Cluster, partition: TopicPartition, batch: bytearray) -> int:
    leader = cluster.leader(partition)
    where = f"cluster {cluster.alias}: {partition}"
    if leader is None:
        raise LeaderMoved(f"{where} has no leader now")
    connection = await cluster.connection(leader.broker, "seed")
    version = connection.version_of(PRODUCE_KEY, PRODUCE_VERSION_MIN, PRODUCE_VERSION_MAX)
    parts = produce_request(
        [(partition.topic, partition.partition, memoryview(batch))], timeout_ms=_TIMEOUT_MS
    )
    body = await connection.request(PRODUCE_KEY, version, [b"".join(parts)])
    (row,) = parse_produce_answer(body)
    if row.error_code != NONE:
        raise broker_error(where, row.error_code, row.message)
    return row.base_offset


async def _delete_before(cluster: Cluster, partition: TopicPartition, offset: int) -> None:
    leader = cluster.leader(partition)
    where = f"cluster {cluster.alias}: {partition}: delete records"
    if leader is None:
        raise LeaderMoved(f"{where}: no leader now")
    connection = await cluster.connection(leader.broker, "seed")
    message = delete_request.DeleteRecordsRequest(
        topics=(
            delete_request.DeleteRecordsTopic(
                name=partition.topic,  # type: ignore[arg-type]
                partitions=(
                    delete_request.DeleteRecordsPartition(
                        partition_index=partition.partition,  # type: ignore[arg-type]
                        offset=offset,  # type: ignore[arg-type]
                    ),
                ),
            ),
        ),
        timeout=datetime.timedelta(milliseconds=_TIMEOUT_MS),  # type: ignore[arg-type]
    )
    answer = await connection.call(message, delete_response.DeleteRecordsResponse)
    for topic in answer.topics:
        for row in topic.partitions:
            if int(row.error_code) == _POLICY_VIOLATION:
                raise _PolicyViolation(f"{where}: the topic is only compacted")
            if int(row.error_code) != NONE:
                raise broker_error(where, int(row.error_code))
