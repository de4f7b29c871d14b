"""Read stretches of many partitions, keeping offset and fingerprint of each record. Driver only.

What a fingerprint covers is what a mirror must keep: key, value, headers and timestamp. It is
Python's own hash, 64 bits with a random seed, so it means something only within this process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME
from confluent_kafka import TopicPartition as ClientPartition

from heliograph.broker.range_reader import PartitionReader, headers_of
from heliograph.clock import monotonic_s
from heliograph.config.schema import ClusterConfig
from heliograph.errors import BrokerUnreachable
from heliograph.model import OffsetRange, TopicPartition
from heliograph.takeover.alignment import Stretch

_SILENCE_S_MAX: Final = 30.0
_CONSUME_S: Final = 0.2
_MESSAGES_AT_ONCE: Final = 5_000
_COPIED_TIMES: Final = frozenset({TIMESTAMP_CREATE_TIME})
_GIVEN_TIMES: Final = frozenset({TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME})


class FingerprintReader(PartitionReader):
    """One consumer of one cluster; joins no group, commits nothing. Used by one thread."""

    def __init__(
        self, cluster: ClusterConfig, *, read_committed: bool, is_copy: bool = False
    ) -> None:
        super().__init__(
            cluster,
            read_committed=read_committed,
            settings={"auto.offset.reset": "error", "check.crcs": True},
        )
        # A copy of append times has them as its own; a copy with append times has lost its own.
        self._kept_times = _COPIED_TIMES if is_copy else _GIVEN_TIMES

    def read(
        self,
        spans: Mapping[TopicPartition, OffsetRange],
        stretches: Mapping[TopicPartition, Stretch],
        *,
        with_timestamps: Mapping[TopicPartition, bool],
        on_records: Callable[[int], None] = lambda _: None,
    ) -> frozenset[TopicPartition]:
        """Add the records of each span to its stretch.

        The answer are the partitions with timestamps that differ between original and copy: where
        the source has none, or the copy has when it was appended. Raises `BrokerError`.
        """
        unfinished = {at: span.end for at, span in spans.items() if span.count}
        clocked: set[TopicPartition] = set()
        self.assign({at: spans[at].start for at in unfinished})
        # One that was read before is still paused.
        self._consumer.resume([ClientPartition(at.topic, at.partition) for at in unfinished])
        heard_s = monotonic_s()
        while unfinished:
            count = 0
            for arrived in self.arrived(_MESSAGES_AT_ONCE, _CONSUME_S):
                at, message = arrived.at, arrived.message
                if arrived.is_end:
                    unfinished.pop(at, None)
                elif at not in unfinished or arrived.offset >= unfinished[at]:
                    self._finish(at, unfinished)
                else:
                    kind, _ = message.timestamp()
                    if kind not in self._kept_times:
                        clocked.add(at)
                    stretches[at].add(
                        arrived.offset, _fingerprint(message, timestamp=with_timestamps[at])
                    )
                    count += 1
                    if arrived.offset == unfinished[at] - 1:
                        self._finish(at, unfinished)
            if count:
                heard_s = monotonic_s()
                on_records(count)
            elif unfinished and monotonic_s() - heard_s > _SILENCE_S_MAX:
                named = ", ".join(map(str, sorted(unfinished)[:3]))
                raise BrokerUnreachable(
                    f"cluster {self.alias}: {named}: nothing read in {_SILENCE_S_MAX:.0f} s"
                )
        return frozenset(clocked)

    def _finish(self, at: TopicPartition, unfinished: dict[TopicPartition, int]) -> None:
        if unfinished.pop(at, None) is not None:
            # What lies behind the span would only be fetched to be thrown away.
            self._consumer.pause([ClientPartition(at.topic, at.partition)])


def _fingerprint(message: Any, *, timestamp: bool) -> int:
    return hash(
        (
            message.key(),
            message.value(),
            headers_of(message),
            message.timestamp()[1] if timestamp else None,
        )
    )
