"""The busiest hour of a flow's topics, by the timestamps in their logs. Does I/O; driver only.

A broker is asked for the offset at every full hour, all partitions it leads in one request; what a
record weighs is seen from one fetch of each topic. So the questions are as many as hours and
topics, whatever the logs hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from heliograph.broker.cluster import LATEST, NO_OFFSET, Cluster, open_cluster
from heliograph.broker.log import fetch_once
from heliograph.clock import now_ms
from heliograph.config.schema import ClusterConfig
from heliograph.errors import BrokerError
from heliograph.ledger.access import within
from heliograph.model import TopicName, TopicPartition
from heliograph.tune.knee import Peak, peak_of
from heliograph.wire.batch import MAGIC_AT, parse_header

HOUR_MS: Final = 3_600_000
PARTITIONS_MAX: Final = 5_000
_SAMPLED_MAX: Final = 200
_ANSWER_S_MAX: Final = 30.0
_SAMPLE_BYTES: Final = 64 * 1024
_SAMPLE_RECORDS: Final = 100
_MAGIC: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakFound:
    peak: Peak | None
    notes: tuple[str, ...] = ()


async def find_peak(
    source: ClusterConfig, topics: Collection[TopicName], *, hours: int
) -> PeakFound:
    """Raises `BrokerError` where the source does not answer."""
    cluster = open_cluster(source, "consumer", only_reads=True)
    try:
        await within(cluster.refresh(topics), _ANSWER_S_MAX, f"cluster {source.alias}")
        return await _found(cluster, _partitions(cluster, topics), hours)
    finally:
        cluster.close()


def _partitions(cluster: Cluster, topics: Collection[TopicName]) -> list[TopicPartition]:
    return [
        TopicPartition(topic=name, partition=number)
        for name in sorted(topics)
        if (topic := cluster.topic(name)) is not None
        for number in range(topic.partition_count)
    ]


async def _found(cluster: Cluster, every: Sequence[TopicPartition], hours: int) -> PeakFound:
    places, notes = every[:PARTITIONS_MAX], []
    if len(every) > len(places):
        notes.append(f"of {len(every):,} partitions the first {len(places):,} were looked at")
    last_ms = now_ms()
    bounds = [last_ms - hour * HOUR_MS for hour in range(hours, -1, -1)]
    ends = await _offsets(cluster, places, LATEST)
    at: dict[TopicPartition, list[int]] = {place: [] for place in places if place in ends}
    for bound in bounds[:-1]:
        found = await _offsets(cluster, list(at), bound)
        for place, offsets in at.items():
            offset = found.get(place, NO_OFFSET)
            offsets.append(ends[place] if offset == NO_OFFSET else offset)
    for place, offsets in at.items():
        offsets.append(ends[place])
    if len(at) < len(places):
        notes.append(f"{len(places) - len(at):,} partitions do not tell their offsets")
    sizes, untold = await _record_bytes(cluster, {at_: ends[at_] for at_ in at})
    notes += untold
    mean = sum(sizes.values()) / len(sizes) if sizes else 0.0
    peak = peak_of(
        bounds,
        ((place.topic, offsets) for place, offsets in at.items()),
        lambda topic: sizes.get(TopicName(topic), mean),
    )
    return PeakFound(peak=peak, notes=tuple(notes))


async def _offsets(
    cluster: Cluster, places: Sequence[TopicPartition], at: int
) -> dict[TopicPartition, int]:
    answers = await within(
        cluster.list_offsets(places, at), _ANSWER_S_MAX, f"cluster {cluster.alias}"
    )
    return {place: answer for place, answer in answers.items() if isinstance(answer, int)}


async def _record_bytes(
    cluster: Cluster, ends: dict[TopicPartition, int]
) -> tuple[dict[TopicName, float], list[str]]:
    """Of a topic's newest records, as they lie in the log: compressed as they are copied."""
    longest: dict[TopicName, TopicPartition] = {}
    for place, end in ends.items():
        known = longest.get(place.topic)
        if end and (known is None or end > ends[known]):
            longest[place.topic] = place
    sampled = list(longest.values())[:_SAMPLED_MAX]
    found = await asyncio.gather(*(_weight(cluster, place, ends[place]) for place in sampled))
    sizes = {
        place.topic: size for place, size in zip(sampled, found, strict=True) if size is not None
    }
    missing = len(longest) - len(sizes)
    notes = [f"{missing:,} topics are taken for as heavy as the others"] if missing else []
    return sizes, notes


async def _weight(cluster: Cluster, place: TopicPartition, end: int) -> float | None:
    try:
        fetched = await within(
            fetch_once(
                cluster,
                place,
                max(0, end - _SAMPLE_RECORDS),
                bytes_max=_SAMPLE_BYTES,
                read_committed=False,
            ),
            _ANSWER_S_MAX,
            f"cluster {cluster.alias}",
        )
    except BrokerError:
        return None
    window, size, records = fetched.records, 0, 0
    while len(window) > MAGIC_AT and window[MAGIC_AT] == _MAGIC:
        header = parse_header(window)
        if header is None:
            break
        if not header.is_control:
            size, records = size + header.size_bytes, records + header.record_count
        window = window[header.size_bytes :]
    return size / records if records else None
