"""Read a stretch of a partition's log, off the hot path. Runs on driver and executors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from heliograph.broker.cluster import Cluster
from heliograph.broker.codes import NONE, broker_error
from heliograph.errors import CorruptBatch, LeaderMoved, OffsetGone
from heliograph.model import TopicPartition
from heliograph.wire.batch import BatchHeader, parse_header, verify_crc
from heliograph.wire.fetch import (
    FETCH_KEY,
    FETCH_VERSION,
    FetchedPartition,
    FetchFrom,
    fetch_request,
    parse_fetch_answer,
    topic_key,
)

_OFFSET_OUT_OF_RANGE: Final = 1
_FETCH_BYTES: Final = 4 * 1024 * 1024
_FETCH_BYTES_MAX: Final = 256 * 1024 * 1024


class _Limits(NamedTuple):
    wait_ms_max: int
    bytes_max: int
    read_committed: bool


async def fetch_once(
    cluster: Cluster,
    partition: TopicPartition,
    offset: int,
    *,
    wait_ms_max: int = 0,
    bytes_max: int = _FETCH_BYTES,
    read_committed: bool = False,
) -> FetchedPartition:
    """One Fetch of one partition, outside any session; from its leader, also if that has moved."""
    limits = _Limits(wait_ms_max, bytes_max, read_committed)
    before = cluster.topic(partition.topic)
    try:
        return await _fetch_from_leader(cluster, partition, offset, limits)
    except LeaderMoved:
        await cluster.refresh([partition.topic])
        after = cluster.topic(partition.topic)
        if before is None or after is None or before.id != after.id:
            raise
        return await _fetch_from_leader(cluster, partition, offset, limits)


async def _fetch_from_leader(
    cluster: Cluster, partition: TopicPartition, offset: int, limits: _Limits
) -> FetchedPartition:
    leader, topic = cluster.leader(partition), cluster.topic(partition.topic)
    where = f"cluster {cluster.alias}: {partition}"
    if leader is None or topic is None:
        raise cluster.no_leader_error(partition)
    connection = await cluster.connection(leader.broker, "read")
    connection.version_of(FETCH_KEY, FETCH_VERSION, FETCH_VERSION)
    key = (topic_key(topic.id), partition.partition)
    body = fetch_request(
        wait_ms_max=limits.wait_ms_max,
        bytes_max=_FETCH_BYTES_MAX,
        read_committed=limits.read_committed,
        session_id=0,
        session_epoch=-1,
        wanted={key: FetchFrom(offset, leader.epoch, -1, limits.bytes_max)},
    )
    answer = parse_fetch_answer(
        await connection.request(
            FETCH_KEY,
            FETCH_VERSION,
            [body],
            timeout_s=connection.answer_s_max + limits.wait_ms_max / 1000,
        )
    )
    if answer.error_code != NONE:
        raise broker_error(where, answer.error_code)
    if len(answer.partitions) != 1 or answer.partitions[0].key != key:
        raise LeaderMoved(f"{where}: the leader answered for another partition")
    fetched = answer.partitions[0]
    if fetched.error_code == _OFFSET_OUT_OF_RANGE:
        raise OffsetGone(str(partition), offset, fetched.log_start_offset)
    if fetched.error_code != NONE:
        permission = f"READ on topic {partition.topic}"
        raise broker_error(where, fetched.error_code, permission=permission)
    return fetched


async def read_batches(
    cluster: Cluster, partition: TopicPartition, start: int, end: int
) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
    """Every v2 batch that reaches into `[start, end)`, oldest first, each with its CRC checked.

    `end` is one that a leader told. Raises `LeaderMoved` while another one does not show all before
    it: a leader that was just elected learns a moment later how far its followers are, and what is
    not read must not pass for what is not there.
    """
    offset = start
    while offset < end:
        fetched = await fetch_once(cluster, partition, offset)
        window, moved = fetched.records, False
        while (header := parse_header(window)) is not None:
            batch = window[: header.size_bytes]
            verify_crc(batch, header)
            window = window[header.size_bytes :]
            if header.next_offset > offset:
                offset, moved = header.next_offset, True
                yield header, batch
            if offset >= end:
                return
        if not moved:
            if fetched.high_watermark <= offset:
                raise LeaderMoved(
                    f"cluster {cluster.alias}: {partition}: the leader shows records up to "
                    f"{fetched.high_watermark}, not yet up to {end}"
                )
            raise CorruptBatch(
                offset, f"{partition}: no whole batch in {len(fetched.records)} bytes"
            )
