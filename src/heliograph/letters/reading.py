"""The letters of a flow as they lie in their topic. Runs on the driver."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

from heliograph.broker.cluster import Cluster
from heliograph.errors import BrokerError
from heliograph.letters.append import end_of, records_from
from heliograph.letters.letter import ReadLetter, read_letter
from heliograph.model import FlowId, OffsetRange, TopicName, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which letters; what is not said means all."""

    topic: str | None = None
    """A regex for the source topic's whole name."""
    partition: int | None = None
    offsets: OffsetRange | None = None
    """Of the source."""
    reason: str | None = None
    """A regex found somewhere in stage, transform, error and message."""
    since_ms: int | None = None
    until_ms: int | None = None
    """When the letter was written."""

    def has(self, letter: ReadLetter) -> bool:
        failure = letter.failure
        reason = f"{failure.stage} {failure.step} {failure.error} {failure.why}"
        return (
            (self.topic is None or re.fullmatch(self.topic, letter.source.topic) is not None)
            and (self.partition is None or self.partition == letter.source.partition)
            and (self.offsets is None or self.offsets.start <= letter.offset < self.offsets.end)
            and (self.reason is None or re.search(self.reason, reason) is not None)
            and (self.since_ms is None or letter.at_ms >= self.since_ms)
            and (self.until_ms is None or letter.at_ms < self.until_ms)
        )


async def read_letters(
    target: Cluster, flow: FlowId, topic: TopicName, wanted: Wanted
) -> AsyncIterator[ReadLetter]:
    """Oldest first in each partition of the topic; of two for one record the first."""
    await target.refresh([topic])
    found = target.topic(topic)
    if found is None:
        raise BrokerError(f"cluster {target.alias}: no topic {topic}: {flow} has no dead letters")
    seen: set[tuple[TopicPartition, int]] = set()
    for number in range(found.partition_count):
        at = TopicPartition(topic=topic, partition=number)
        async for offset, content in records_from(target, at, 0, await end_of(target, at)):
            letter = read_letter(at, offset, content)
            if letter is None or letter.flow != str(flow) or not wanted.has(letter):
                continue
            if (letter.source, letter.offset) not in seen:
                seen.add((letter.source, letter.offset))
                yield letter
