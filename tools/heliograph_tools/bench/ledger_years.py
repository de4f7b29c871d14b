"""What a ledger costs after long use: bytes on disk, seconds and memory to start. Runs on the
driver.

The ledger is written as slots write it, straight to its topic and as fast as the broker takes it:
one lane whose runs come chunk by chunk and are merged, then heads of many lanes, tick by tick. The
bytes are those of a slot; they are made by the thousand, since a week must pass in minutes.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.cluster import Cluster
from heliograph.clock import monotonic_s, now_ms
from heliograph.config.schema import ClusterConfig
from heliograph.errors import BenchError
from heliograph.ledger.entries import HeadEntry, RunsKey, StartEntry, new_author
from heliograph.ledger.entry_codec import encode, encode_key
from heliograph.ledger.packed_runs import pack_runs
from heliograph.ledger.runs import Run
from heliograph.ledger.runs_codec import encode_runs, put_varint, take_varint
from heliograph.ledger.segments import SEGMENT_RUNS
from heliograph.ledger.settings import ensure_ledger_topic
from heliograph.ledger.topic import LedgerTopic
from heliograph.ledger.writer import LedgerWriter
from heliograph.model import ClusterAlias, TopicId, TopicName, TopicPartition
from heliograph_tools.bench.ledger_command import (
    SHORT_LANE_RECORDS,
    flow_entry,
    make_logs,
    run_command,
    write_checkpoints,
)
from heliograph_tools.bench.ledger_reader import LONG_LANE, short_lane
from heliograph_tools.bench.rows import LedgerRow, System
from heliograph_tools.bench.stage import Stage

Record = tuple[bytes, bytes | None]

_RUNS_OF_A_CHUNK: Final = 64
_RECORDS_OF_A_RUN: Final = 2
"""Few, since the mirrored log has them all."""
_TICKS_BUILT: Final = 32
"""Batches of heads, sent over and over: they differ in what they say, not in their size."""
_TICKS_AT_ONCE: Final = 8
_COMPACTION_S_MAX: Final = 180.0
_TOPIC_ID: Final = TopicId("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0")
_READER_S_MAX: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRun:
    system: System
    round_index: int
    runs: int
    lanes: int
    head_ticks: int
    written_bytes: int
    """Records and batches as they were sent."""
    write_s: float
    topic_bytes: int
    """Of the topic's segments, once compaction had nothing to do."""
    slot_read_s: float
    slot_ready_s: float
    slot_rss_mb: float
    failover_read_s: float
    failover_ready_s: float
    """All lanes read, every offset of every group translated."""
    failover_rss_mb: float
    moves: int
    exact_moves: int
    command_s: float
    """`heliograph failover` of all groups, as a process with its imports; the source is down."""
    command_rto_s: float
    """From its first step to the end of the last."""
    command_rss_mb: float
    command_moves: int
    command_exact_moves: int


def run_ledger(stage: Stage, row: LedgerRow, system: System, round_index: int) -> LedgerRun:
    alias = f"years{round_index}"
    name = TopicName(f"heliograph-ledger.{alias}.internal")
    admin = ClusterAdmin(
        ClusterConfig(alias=ClusterAlias("target"), bootstrap_servers=(stage.target.bootstrap,))
    )
    ensure_ledger_topic(admin, name, replication_factor=1)
    admin.await_partitions({name: 1})
    began_s = monotonic_s()
    written = asyncio.run(_write(stage.target.bootstrap, name, alias, row))
    write_s = monotonic_s() - began_s
    # Whole segments only; what is left over is not written.
    runs = row.runs // SEGMENT_RUNS * SEGMENT_RUNS
    make_logs(stage, row, alias, _position(runs))
    write_checkpoints(stage, row, alias, runs * (_RECORDS_OF_A_RUN + 1))
    topic_bytes = _await_compacted(stage, name, row.quiet_s)
    slot, failover = (_read(stage, name, row, role) for role in ("slot", "failover"))
    command = run_command(stage, row, alias)
    stage.drop_topics(alias)
    return LedgerRun(
        system=system,
        round_index=round_index,
        runs=failover["runs"],
        lanes=row.lanes,
        head_ticks=row.head_ticks,
        written_bytes=written,
        write_s=write_s,
        topic_bytes=topic_bytes,
        slot_read_s=slot["read_s"],
        slot_ready_s=slot["ready_s"],
        slot_rss_mb=slot["rss_mb"],
        failover_read_s=failover["read_s"],
        failover_ready_s=failover["ready_s"],
        failover_rss_mb=failover["rss_mb"],
        moves=failover["moves"],
        exact_moves=failover["exact"],
        command_s=command.command_s,
        command_rto_s=command.rto_s,
        command_rss_mb=command.rss_mb,
        command_moves=command.moves,
        command_exact_moves=command.exact_moves,
    )


async def _write(bootstrap: str, name: TopicName, alias: str, row: LedgerRow) -> int:
    cluster = Cluster(ClusterAlias("target"), [bootstrap], {})
    topic = LedgerTopic(cluster, name)
    await topic.refresh()
    writer = LedgerWriter(topic)
    sent = 0

    async def send(batches: Iterable[bytes]) -> None:
        nonlocal sent
        some = [bytearray(batch) for batch in batches]
        sent += sum(map(len, some))
        await asyncio.gather(*(writer._append(batch) for batch in some))

    try:
        starts = [_start(lane) for lane in (LONG_LANE, *map(short_lane, range(row.lanes)))]
        await send([_batch([encode(flow_entry(alias)), *map(encode, starts)])])
        for records in _long_lane(row.runs):
            await send([_batch(records)])
        ends = _position(row.runs // SEGMENT_RUNS * SEGMENT_RUNS)
        await send([_batch([encode(_head(LONG_LANE, ends))])])
        random = Random(1)
        positions = [random.randrange(10**10) for _ in range(row.lanes)]
        ticks: list[bytes] = []
        for _ in range(min(_TICKS_BUILT, row.head_ticks)):
            positions = [position + random.randrange(50_000) for position in positions]
            heads = [_head(short_lane(lane), at) for lane, at in enumerate(positions)]
            ticks.append(_batch([encode(head) for head in heads]))
        for first in range(0, row.head_ticks, _TICKS_AT_ONCE):
            some = range(first, min(first + _TICKS_AT_ONCE, row.head_ticks))
            await send([ticks[tick % len(ticks)] for tick in some])
        # The last ones are true of the mirrored logs.
        last = [_head(short_lane(lane), SHORT_LANE_RECORDS) for lane in range(row.lanes)]
        await send([_batch(map(encode, last))])
    finally:
        cluster.close()
    return sent


def _batch(records: Iterable[Record]) -> bytes:
    """As the ledger's writer makes them, but that no producer stands in it."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=DefaultRecordBatch.CODEC_ZSTD,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1_000_000,
    )
    for index, (key, value) in enumerate(records):
        if builder.append(index, now_ms(), key, value, []) is None:
            raise BenchError("a batch of the ledger is too large")
    return bytes(builder.build())


def _long_lane(runs: int) -> Iterator[list[Record]]:
    """Chunk by chunk, each full segment merged when its runs are there.

    Every run has as many records and a marker behind it, so all chunks and all segments differ in
    their first numbers only.
    """
    author, slot = new_author(), new_author()
    chunk = _runs(0, _RUNS_OF_A_CHUNK)
    chunk_tail = _after_numbers(encode_runs(chunk, _position(_RUNS_OF_A_CHUNK)), 1, 3)
    packed = pack_runs(_runs(0, SEGMENT_RUNS), _position(SEGMENT_RUNS)).value
    flags, packed_tail = packed[5], _after_numbers(packed, 6, 3)
    for first in range(0, runs - SEGMENT_RUNS + 1, SEGMENT_RUNS):
        keys = [
            _key(number, author) for number in range(first, first + SEGMENT_RUNS, _RUNS_OF_A_CHUNK)
        ]
        records: list[Record] = [
            (key, b"\x01" + _numbers(number, _RUNS_OF_A_CHUNK) + chunk_tail)
            for key, number in zip(
                keys, range(first, first + SEGMENT_RUNS, _RUNS_OF_A_CHUNK), strict=True
            )
        ]
        body = bytes([flags]) + _numbers(first, SEGMENT_RUNS) + packed_tail
        value = b"\x02" + zlib.crc32(body).to_bytes(4, "big") + body
        records.append((_key(first, slot), value))
        records += [(key, None) for key in keys]
        yield records


def _position(run: int) -> int:
    return run * _RECORDS_OF_A_RUN


def _runs(first: int, count: int) -> list[Run]:
    """Transactions of 20 records, each with its marker; the target has no gaps."""
    return [
        Run(
            position=_position(number),
            source_offset=number * (_RECORDS_OF_A_RUN + 1),
            target_offset=_position(number),
        )
        for number in range(first, first + count)
    ]


def _key(run: int, author: str) -> bytes:
    key = RunsKey(
        topic=LONG_LANE.topic,
        partition=LONG_LANE.partition,
        position=_position(run),
        author=author,
    )
    return encode_key(key)


def _numbers(first: int, count: int) -> bytes:
    """Extent, source offset and target offset, as both forms of runs have them."""
    out = bytearray()
    for number in (_position(count), first * (_RECORDS_OF_A_RUN + 1), _position(first)):
        put_varint(out, number)
    return bytes(out)


def _after_numbers(value: bytes, at: int, count: int) -> bytes:
    for _ in range(count):
        _, at = take_varint(value, at)
    return value[at:]


def _start(lane: TopicPartition) -> StartEntry:
    return StartEntry(
        topic=lane.topic,
        partition=lane.partition,
        position=0,
        author="0" * 32,
        source_offset=0,
        target_offset=0,
        source_topic_id=_TOPIC_ID,
        target_topic_id=None,
        at_ms=now_ms(),
    )


def _head(lane: TopicPartition, position: int) -> HeadEntry:
    return HeadEntry(
        topic=lane.topic,
        partition=lane.partition,
        position=position,
        source_next_offset=position + (position // _RECORDS_OF_A_RUN if lane == LONG_LANE else 0),
        source_end_offset=2 * position + position % 997,
        target_next_offset=position,
        source_topic_id=_TOPIC_ID,
        target_topic_id=_TOPIC_ID,
        at_ms=now_ms(),
        state="copying",
        detail="",
    )


def _await_compacted(stage: Stage, name: TopicName, quiet_s: float) -> int:
    """Until the topic's segments have not changed for a while; their bytes."""
    (folder,) = stage.target.folder.rglob(f"{name}-0")
    deadline_s, same_since_s = monotonic_s() + _COMPACTION_S_MAX, monotonic_s()
    size = _log_bytes(folder)
    while monotonic_s() - same_since_s < quiet_s and monotonic_s() < deadline_s:
        time.sleep(1)
        now = _log_bytes(folder)
        if now != size:
            size, same_since_s = now, monotonic_s()
    return size


def _log_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in list(folder.glob("*.log")) if path.exists())


def _read(stage: Stage, name: TopicName, row: LedgerRow, role: str) -> dict[str, Any]:
    order = {
        "bootstrap": stage.target.bootstrap,
        "topic": name,
        "lanes": row.lanes,
        "groups": row.groups,
        "as": role,
    }
    done = subprocess.run(
        [sys.executable, "-m", "heliograph_tools.bench.ledger_reader", json.dumps(order)],
        capture_output=True,
        text=True,
        check=False,
        timeout=_READER_S_MAX,
    )
    if done.returncode != 0:
        raise BenchError(f"reading as a {role} ended with {done.returncode}: {done.stderr[-500:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    if found["missing"]:
        raise BenchError(f"the ledger lost {found['missing']} lanes")
    return found
