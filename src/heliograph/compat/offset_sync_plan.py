"""When an offset sync is written: MirrorMaker 2's own rules. No I/O; runs anywhere.

MirrorMaker 2 decides after every record. Here a lane is looked at now and then, so what is judged
is a stretch of records by its newest; a stretch of one is judged exactly as MirrorMaker 2 would.
The lane's position says how many records a stretch holds, so a gap upstream is seen wherever in
the stretch it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from heliograph.model import TopicPartition
from heliograph.wire.mirror_records import OffsetSync


@dataclass(slots=True, eq=False)
class SyncedPartition:
    """What is remembered of a partition; -1 stands for nothing yet, as in MirrorMaker 2."""

    lag_max: int
    """`offset.lag.max`."""
    last_upstream_offset: int = -1
    last_downstream_offset: int = -1
    synced_downstream_offset: int = -1
    """Of the last sync that was due at once."""

    def is_due(self, upstream_offset: int, downstream_offset: int, *, records: int = 1) -> bool:
        """Whether the newest of `records` more records is to be told at once."""
        first = self.synced_downstream_offset == -1
        # Readers translate what is past a sync to one past it, hence the 1.
        stale = downstream_offset - (self.synced_downstream_offset + 1) >= self.lag_max
        gap = records < 1 or upstream_offset - self.last_upstream_offset != records
        truncated = downstream_offset < self.last_downstream_offset
        due = first or stale or gap or truncated
        if due:
            self.synced_downstream_offset = downstream_offset
        self.last_upstream_offset = upstream_offset
        self.last_downstream_offset = downstream_offset
        return due


@dataclass(slots=True, eq=False)
class SyncQueue:
    """Syncs of one flow on their way: at most one per partition, the newest.

    Those due at once are `pending`. The others are delayed until `promote_delayed`, so that a
    partition with little traffic is not left behind for good (KAFKA-15906). Memory only: after a
    restart the first sight of each partition is due at once.
    """

    lag_max: int
    _partitions: dict[TopicPartition, SyncedPartition] = field(default_factory=dict, init=False)
    _positions: dict[TopicPartition, int] = field(default_factory=dict, init=False)
    _pending: dict[TopicPartition, OffsetSync] = field(default_factory=dict, init=False)
    _delayed: dict[TopicPartition, OffsetSync] = field(default_factory=dict, init=False)

    def observe(
        self,
        source: TopicPartition,
        *,
        upstream_offset: int,
        downstream_offset: int,
        position: int,
    ) -> None:
        """The newest mirrored record of a partition, and how many were mirrored in all."""
        seen = self._partitions.setdefault(source, SyncedPartition(lag_max=self.lag_max))
        records = position - self._positions.get(source, 0)
        last = (seen.last_upstream_offset, seen.last_downstream_offset)
        if records == 0 and last == (upstream_offset, downstream_offset):
            return
        self._positions[source] = position
        sync = OffsetSync(
            topic=source.topic,
            partition=source.partition,
            upstream_offset=upstream_offset,
            downstream_offset=downstream_offset,
        )
        if seen.is_due(upstream_offset, downstream_offset, records=records):
            self._delayed.pop(source, None)
            self._pending[source] = sync
        else:
            self._delayed[source] = sync

    def promote_delayed(self) -> None:
        """MirrorMaker 2 does so whenever Connect flushes offsets."""
        self._pending |= self._delayed
        self._delayed.clear()

    @property
    def pending(self) -> Mapping[TopicPartition, OffsetSync]:
        """To be written now, as of this call."""
        return dict(self._pending)

    @property
    def delayed(self) -> Mapping[TopicPartition, OffsetSync]:
        return dict(self._delayed)

    def written(self, syncs: Mapping[TopicPartition, OffsetSync]) -> None:
        """Forget what was acknowledged; what became newer meanwhile stays."""
        for partition, sync in syncs.items():
            if self._pending.get(partition) is sync:
                del self._pending[partition]
