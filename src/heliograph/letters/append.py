"""Append records to a partition in their place, and see that they are there. Driver and executors.

For the few records that are no lane's: letters, and what is replayed. One batch at a time, each at
the sequence that follows the producer's last one, and read again once it is acknowledged: a broker
answers a batch that it takes for a repeat with the place of the first, whatever that holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from heliograph.broker.cluster import EARLIEST, LATEST, Cluster
from heliograph.broker.codes import NONE, OUT_OF_PLACE, broker_error
from heliograph.broker.log import read_batches
from heliograph.clock import monotonic_s
from heliograph.errors import BrokerError, InvariantError, LeaderMoved
from heliograph.model import TopicPartition
from heliograph.wire.batch import SEQUENCES, Stamp, restamp
from heliograph.wire.opened import Content, open_records
from heliograph.wire.produce import (
    PRODUCE_KEY,
    PRODUCE_VERSION_MAX,
    PRODUCE_VERSION_MIN,
    parse_produce_answer,
    produce_request,
)
from heliograph.wire.rows import encode_records

_BATCH_BYTES: Final = 256 * 1024
_TIMEOUT_MS: Final = 30_000
_AHEAD_S_MAX: Final = 10.0
_PAUSE_S: Final = 0.2


async def end_of(cluster: Cluster, at: TopicPartition, time: int = LATEST) -> int:
    """Where the partition ends, or with `EARLIEST` begins."""
    if cluster.leader(at) is None:
        await cluster.refresh([at.topic])
    found = (await cluster.list_offsets([at], time))[at]
    if isinstance(found, BrokerError):
        raise found
    return found


async def records_from(
    cluster: Cluster, at: TopicPartition, start: int, end: int
) -> AsyncIterator[tuple[int, Content]]:
    """Every record of `[start, end)` that is still there, with its offset."""
    start = max(start, await end_of(cluster, at, EARLIEST))
    async for header, batch in read_batches(cluster, at, start, end):
        if header.is_control:
            continue
        for first, contents in open_records(batch, header):
            for offset, content in enumerate(contents, first):
                if start <= offset < end:
                    yield offset, content


async def settled_records(
    cluster: Cluster, at: TopicPartition, start: int, producer_id: int, sequence: int
) -> tuple[list[tuple[int, Content]], int]:
    """The records from `start` on, and the sequence that is next for the producer, which was
    `sequence` there.

    The log up to the high watermark is believed. What the leader remembers of the producer may be
    further: this waits until its followers have that too. Raises `LeaderMoved` where they do not.
    """
    deadline_s = monotonic_s() + _AHEAD_S_MAX
    while True:
        end, following, found = await end_of(cluster, at), sequence, []
        first = max(start, await end_of(cluster, at, EARLIEST))
        async for header, batch in read_batches(cluster, at, first, end):
            if header.producer_id == producer_id:
                following = (header.last_sequence + 1) % SEQUENCES
            for opened_at, contents in open_records(batch, header):
                found += list(enumerate(contents, opened_at))
        known = await _last_sequence(cluster, at, producer_id)
        if known < 0 or (known + 1) % SEQUENCES == following:
            return found, following
        if monotonic_s() > deadline_s:
            raise LeaderMoved(
                f"cluster {cluster.alias}: {at}: the leader has records that its followers lack"
            )
        await asyncio.sleep(_PAUSE_S)


async def next_sequence(cluster: Cluster, at: TopicPartition, producer_id: int) -> int:
    if cluster.leader(at) is None:
        await cluster.refresh([at.topic])
    return (await _last_sequence(cluster, at, producer_id) + 1) % SEQUENCES


async def append_records(
    cluster: Cluster, at: TopicPartition, stamp: Stamp, sequence: int, contents: Sequence[Content]
) -> int:
    """Append all in order, the first as `sequence`; the sequence that is next.

    Raises `LeaderMoved` where the log holds something else at that place: what is there must be
    looked at before anything is sent again.
    """
    for batch in encode_records(range(len(contents)), contents, 0, bytes_max=_BATCH_BYTES):
        first = batch.stretches[0].source_offset
        view = memoryview(batch.batch)
        restamp(
            view,
            producer_id=stamp.producer_id,
            producer_epoch=stamp.producer_epoch,
            sequence=sequence,
        )
        base_offset = await _produce(cluster, at, view)
        sent = list(contents[first : first + batch.record_count])
        end = base_offset + len(sent)
        there = [content async for _, content in records_from(cluster, at, base_offset, end)]
        if [each[1:] for each in there] != [each[1:] for each in sent]:
            raise LeaderMoved(
                f"cluster {cluster.alias}: {at}: others appended at offset {base_offset}"
            )
        sequence = (sequence + len(sent)) % SEQUENCES
    return sequence


async def _last_sequence(cluster: Cluster, at: TopicPartition, producer_id: int) -> int:
    found = (await cluster.last_sequences([at], producer_id))[at]
    if isinstance(found, BrokerError):
        raise found
    return found


async def _produce(cluster: Cluster, at: TopicPartition, batch: memoryview) -> int:
    where, leader = f"cluster {cluster.alias}: {at}", cluster.leader(at)
    if leader is None:
        await cluster.refresh([at.topic])
        leader = cluster.leader(at)
    if leader is None:
        raise cluster.no_leader_error(at)
    connection = await cluster.connection(leader.broker, "letters")
    version = connection.version_of(PRODUCE_KEY, PRODUCE_VERSION_MIN, PRODUCE_VERSION_MAX)
    parts = produce_request([(at.topic, at.partition, batch)], timeout_ms=_TIMEOUT_MS)
    body = await connection.request(PRODUCE_KEY, version, [b"".join(parts)])
    rows = parse_produce_answer(body)
    if len(rows) != 1:
        raise InvariantError(f"{where}: answered for {len(rows)} partitions, one was asked for")
    if rows[0].error_code in OUT_OF_PLACE:
        raise LeaderMoved(f"{where}: the log went on meanwhile")
    if rows[0].error_code != NONE:
        permission = f"WRITE on topic {at.topic}"
        raise broker_error(where, rows[0].error_code, rows[0].message, permission=permission)
    return rows[0].base_offset
