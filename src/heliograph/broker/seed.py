"""Make a target partition begin at the source's offset (`offsets = preserve`). Runs on executors.

Filler records are appended until the log ends where the source starts, then deleted. A zstd batch
of 100,000 empty records is 59 KB on the wire; a broker takes millions of such offsets a second.
"""

from __future__ import annotations

import datetime
from typing import Final

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from kio.schema.delete_records.v2 import request as delete_request
from kio.schema.delete_records.v2 import response as delete_response

from heliograph.broker.cluster import Cluster
from heliograph.broker.codes import NONE, OUT_OF_PLACE, broker_error
from heliograph.broker.log import read_batches
from heliograph.clock import now_ms
from heliograph.errors import BrokerError, LeaderMoved, OffsetGone
from heliograph.model import OffsetRange, TopicPartition
from heliograph.probe import FILLER_APPENDED, FILLER_DELETED, FILLER_TO_DELETE, probe
from heliograph.wire.batch import SEQUENCES, Stamp, restamp
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


async def seed(
    cluster: Cluster,
    partition: TopicPartition,
    stamp: Stamp,
    *,
    log: OffsetRange,
    last_sequence: int,
    wanted: int,
) -> int:
    """Append filler until the log ends at `wanted`, and delete it; returns where the log ends then.

    Filler is compared and appended like records: it carries the sequences before the lane's first,
    so the last one has 2^31 - 1 and the record at position 0 follows it. Whoever dies here leaves a
    `last_sequence` that says how much is missing; a second seeder, or one that wakes up late, is
    refused and cannot put filler behind a mirrored record nor delete one.

    A topic that is only compacted refuses DeleteRecords, and the filler would stay for ever: asked
    before the first record is written, such a partition is left as it is and its lane is mapped.
    """
    if not await _may_delete(cluster, partition):
        return log.end
    end, left = log.end, filler_left(log.end, last_sequence, wanted)
    filler = _filler(FILLER_RECORDS)
    while left > 0:
        count = min(FILLER_RECORDS, left)
        batch = filler if count == FILLER_RECORDS else _filler(count)
        restamp(
            memoryview(batch),
            producer_id=stamp.producer_id,
            producer_epoch=stamp.producer_epoch,
            sequence=-left % SEQUENCES,
        )
        end = await append_batch(cluster, partition, batch) + count
        probe(FILLER_APPENDED)
        left -= count
    if await _is_all_filler(cluster, partition, OffsetRange(start=log.start, end=end), stamp):
        probe(FILLER_TO_DELETE)
        await _delete_before(cluster, partition, end)
    probe(FILLER_DELETED)
    return end


def is_filler(last_sequence: int) -> bool:
    """Whether the newest batch of a lane that has not begun is filler; sequences near the end are.

    A lane without a start has no records of its own, but a ledger that was lost looks the same.
    """
    return last_sequence >= SEQUENCES // 2


def filler_left(end: int, last_sequence: int, wanted: int) -> int:
    """How many filler records are missing, as the log says it where seeding has begun.

    Those who began may have wanted another start, which the source has deleted since: what they
    began is finished, because the first record can only follow sequence 2^31 - 1.
    """
    if last_sequence < 0:
        return max(0, wanted - end)
    left = SEQUENCES - 1 - last_sequence
    is_as_wanted = wanted > end and (wanted - end - left) % SEQUENCES == 0
    return wanted - end if is_as_wanted else left


async def _is_all_filler(
    cluster: Cluster, partition: TopicPartition, log: OffsetRange, stamp: Stamp
) -> bool:
    """Whether nobody else wrote meanwhile; their records are not ours to delete."""
    try:
        async for header, _ in read_batches(cluster, partition, log.start, log.end):
            if header.producer_id != stamp.producer_id:
                return False
    except OffsetGone as exc:
        raise LeaderMoved(f"{partition}: another mirror has cleared it") from exc
    return True


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


async def append_batch(cluster: Cluster, partition: TopicPartition, batch: bytearray) -> int:
    """Where it is then. Raises `BrokerError`; one that has its sequence already is at its place."""
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
    if row.error_code in OUT_OF_PLACE:
        raise LeaderMoved(f"{where}: another mirror has written there as this producer")
    if row.error_code != NONE:
        permission = f"WRITE on topic {partition.topic}"
        raise broker_error(where, row.error_code, row.message, permission=permission)
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
                permission = f"DELETE on topic {partition.topic}"
                raise broker_error(where, int(row.error_code), permission=permission)
