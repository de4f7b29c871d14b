"""The source of an audited lane, as its records should be on the target. Runs anywhere.

Where a lane's records go through transforms the audit puts them through the same ones. What a
transform drops, and what became a dead letter or was skipped, is then not there on either side; it
is counted.
"""

from __future__ import annotations

from heliograph.audit.reading import FETCH_BYTES, BatchView, Damaged, LogReader, RecordReader
from heliograph.audit.units import AuditUnit, UnitMap
from heliograph.broker.cluster import Cluster
from heliograph.errors import NotComparable
from heliograph.transform.lane import LaneTransform
from heliograph.transform.record import Where
from heliograph.wire.opened import Content


def source_reader(
    source: Cluster,
    target: Cluster,
    unit: AuditUnit,
    start: int,
    *,
    likely_end: int,
    fetch_bytes_max: int = FETCH_BYTES,
) -> RecordReader:
    """Raises `TransformUnusable` where a transform of the lane cannot be had here."""
    log = LogReader(
        source,
        unit.lane.source,
        start,
        read_committed=unit.read_committed,
        likely_end=likely_end,
        fetch_bytes_max=fetch_bytes_max,
        left_out_until=None if unit.writers is None else UnitMap(unit).brought_until,
    )
    at = unit.lane.source
    where = Where(at.topic, unit.target.topic, at.partition)
    transform = LaneTransform.of(unit.transforms, where, (source.registry, target.registry))
    if transform is None and not unit.left_out:
        return log
    left_out = frozenset(offset for part in unit.left_out for offset in range(part.start, part.end))
    transform = transform or LaneTransform.nothing(where)
    return TransformedLog(log, transform, at.topic, likely_end, left_out)


class TransformedLog(RecordReader):
    """A log's records after a lane's transforms, without those that these drop or fail on."""

    def __init__(
        self,
        log: LogReader,
        transform: LaneTransform,
        topic: str,
        end: int,
        left_out: frozenset[int],
    ) -> None:
        super().__init__()
        self._unmirrored = left_out
        """Source offsets of dead letters and of what was skipped."""
        self._log, self._transform, self._topic = log, transform, topic
        self._end = end
        """What is dropped behind it belongs to another unit."""

    async def close(self) -> None:
        await super().close()
        await self._log.close()

    async def _fill(self) -> None:
        piece = await self._log.head()
        self.log_start, self.bytes = self._log.log_start, self._log.bytes
        self.others = self._log.others
        if piece is None:
            self._is_over = True
            return
        offset, count = piece.offset, piece.count
        found = piece.contents(count)
        if isinstance(found[0], Damaged):
            self._pieces.append(BatchView(offset, count, piece.header, None, list(found)))
        else:
            contents: list[Content] = [each for each in found if not isinstance(each, Damaged)]
            self._put(offset, self._transformed(offset, contents))
        self._log.take(count)

    def _transformed(self, offset: int, contents: list[Content]) -> list[Content | None]:
        """Twice: what differs from itself cannot be compared with anything."""
        offsets = range(offset, offset + len(contents))
        made = self._transform.apply_patiently(offsets, contents).contents
        if self._transform.apply_patiently(offsets, contents).contents != made:
            raise NotComparable(
                f"{self._topic}: its transforms give other records each time, so what they gave "
                "the target cannot be told"
            )
        if self._unmirrored:
            made = [
                None if at in self._unmirrored else content
                for at, content in zip(offsets, made, strict=True)
            ]
        return made

    def _put(self, offset: int, made: list[Content | None]) -> None:
        held: list[Content] = []
        for number, content in enumerate([*made, None]):
            if content is not None:
                held.append(content)
            elif held:
                first = offset + number - len(held)
                self._pieces.append(BatchView(first, len(held), None, None, held))
                held = []
        self.left_out += made[: max(0, self._end - offset)].count(None)
