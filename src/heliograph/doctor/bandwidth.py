"""How fast one reader is given records of mirrored topics: a few megabytes. Does I/O; driver."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from heliograph.broker.cluster import EARLIEST, LATEST, open_cluster
from heliograph.broker.log import fetch_once
from heliograph.clock import monotonic_s
from heliograph.config.schema import ClusterConfig
from heliograph.doctor.facts import Untold
from heliograph.errors import MirrorError
from heliograph.model import TopicPartition
from heliograph.wire.batch import parse_header

READ_BYTES_MAX: Final = 32 * 2**20
READ_S_MAX: Final = 3.0
_FETCH_BYTES: Final = 4 * 2**20
_TELLING_BYTES: Final = 2**20
"""Less says more about round trips than about the link."""
_PARTITIONS_MAX: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRate:
    bytes: int
    seconds: float

    @property
    def bytes_per_s(self) -> float:
        return self.bytes / max(self.seconds, 1e-6)


async def read_rate(
    config: ClusterConfig, partitions: Sequence[TopicPartition], *, answer_s_max: float
) -> ReadRate | Untold:
    """From the newest records of a few partitions, one fetch after the other on one connection
    for each broker; bounded in bytes and time."""
    cluster = open_cluster(config, "consumer")
    try:
        async with asyncio.timeout(READ_S_MAX + 2 * answer_s_max):
            await cluster.refresh({each.topic for each in partitions})
            starts = await cluster.list_offsets(partitions, EARLIEST)
            ends = await cluster.list_offsets(partitions, LATEST)
            spans = {
                each: (start, end)
                for each in partitions
                if isinstance(start := starts.get(each), int)
                and isinstance(end := ends.get(each), int)
                and end > start
            }
            if not spans:
                return Untold(why="the mirrored topics hold no record that may be read")
            largest = sorted(spans, key=lambda at: spans[at][0] - spans[at][1])[:_PARTITIONS_MAX]
            read_bytes = 0
            began_s = monotonic_s()
            for at in largest:
                offset, end = spans[at]
                while offset < end and not _is_enough(read_bytes, began_s):
                    fetched = await fetch_once(cluster, at, offset, bytes_max=_FETCH_BYTES)
                    read_bytes += len(fetched.records)
                    following = _behind(fetched.records, offset)
                    if following == offset:
                        break
                    offset = following
            took_s = monotonic_s() - began_s
    except TimeoutError:
        return Untold(why="no answer in time")
    except MirrorError as exc:
        return Untold(why=str(exc))
    finally:
        cluster.close()
    if read_bytes < _TELLING_BYTES:
        return Untold(why=f"only {read_bytes:,} bytes are there to be read, too few to tell")
    return ReadRate(bytes=read_bytes, seconds=took_s)


def _is_enough(read_bytes: int, began_s: float) -> bool:
    return read_bytes >= READ_BYTES_MAX or monotonic_s() - began_s >= READ_S_MAX


def _behind(records: memoryview, offset: int) -> int:
    """The offset after the last whole batch; the same where there is none of format v2."""
    while records and (header := parse_header(records)) is not None:
        offset = max(offset, header.next_offset)
        records = records[header.size_bytes :]
    return offset
