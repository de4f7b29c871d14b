"""What a failover leaves behind on the source, partition by partition. Driver only; does no I/O.

A source that is gone cannot be asked where it ended. The heads in the ledger have what its brokers
last said, so the count is a lower bound, while the first offset that never arrived is exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from heliograph.failover.source_ends import SourceEnds
from heliograph.ledger.locations import LaneLocation
from heliograph.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmirroredTail:
    """Source offsets from `first_missing_offset` on are not on the target."""

    source: TopicPartition
    target: TopicPartition
    first_missing_offset: int
    """Every record before it arrived; none from it on did."""
    is_exact: bool
    """Whether the target's log says so itself, not only what the ledger last noted."""
    known_end_offset: int
    """Where the source's log was last known to end; it may have grown since."""
    known_at_ms: int | None
    """When that was so; None where it is not known."""
    source_told: bool
    """Whether the source itself says so now; otherwise it is what the ledger has."""
    oldest_ms: int | None = None
    """Timestamp of the first record that did not arrive, where the source tells."""

    @property
    def records_min(self) -> int:
        """At least so many offsets are lost; transaction markers among them count."""
        return max(0, self.known_end_offset - self.first_missing_offset)


def find_losses(locations: Iterable[LaneLocation], seen: SourceEnds) -> tuple[UnmirroredTail, ...]:
    """One for each lane, in order."""
    return tuple(_loss(location, seen) for location in locations)


def _loss(location: LaneLocation, seen: SourceEnds) -> UnmirroredTail:
    source, head = location.lane.source, location.record.head
    end = seen.ends.get(source)
    if end is None:
        noted = head.source_end_offset if head is not None else location.source_next_offset
        return UnmirroredTail(
            source=source,
            target=location.target,
            first_missing_offset=location.source_next_offset,
            is_exact=location.exact,
            known_end_offset=max(location.source_next_offset, noted),
            known_at_ms=None if head is None else head.at_ms,
            source_told=False,
        )
    waiting = seen.waiting.get(source)
    # Markers and aborted records would not have been mirrored, so they are no loss.
    missing = location.source_next_offset if waiting is None else waiting.offset
    return UnmirroredTail(
        source=source,
        target=location.target,
        first_missing_offset=missing,
        is_exact=location.exact,
        known_end_offset=max(missing, end),
        known_at_ms=seen.at_ms,
        source_told=True,
        oldest_ms=None if waiting is None else waiting.timestamp_ms,
    )
