"""One lane's records of the ledger, folded when they are asked for. No I/O; runs anywhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from heliograph.errors import WireError
from heliograph.ledger.entries import (
    HeadEntry,
    HeadKey,
    LossEntry,
    LossKey,
    RunsKey,
    SegmentEntry,
    StartEntry,
    StartKey,
    Tombstone,
    keeps_sources,
    key_of,
    only_raises,
)
from heliograph.ledger.entry_codec import decode, encode_key
from heliograph.ledger.packed_runs import COARSE_VERSION, PackedRuns, parse_packed
from heliograph.ledger.packed_runs import VERSION as PACKED_VERSION
from heliograph.ledger.raised import raised
from heliograph.ledger.runs import Block, LooseRuns, Runs
from heliograph.ledger.runs_codec import VERSION as CHUNK_VERSION
from heliograph.ledger.runs_codec import decode_block
from heliograph.model import TopicPartition

_HEAD_BEGINS: Final = b'{"v":1,'
_RUNS_BEGIN: Final = (bytes([CHUNK_VERSION]), bytes([PACKED_VERSION]), bytes([COARSE_VERSION]))

Chunk = tuple[LooseRuns, int | None]
"""What a chunk needed, and where it ends; None: without end."""
WrittenRuns = Chunk | PackedRuns


class LaneFold:
    """The last record of each key, in log order; the view has them from its topic."""

    __slots__ = (
        "_head",
        "_head_bytes",
        "_head_key",
        "_is_stale",
        "_runs",
        "lane",
        "losses",
        "run_keys",
        "starts",
        "unreadable",
        "written",
    )

    def __init__(self, lane: TopicPartition) -> None:
        self.lane = lane
        self.losses: dict[LossKey, LossEntry] = {}
        self.written: dict[StartKey | RunsKey, StartEntry | WrittenRuns | bytes] = {}
        """Runs as bytes until they are asked for."""
        self.starts: dict[StartKey, StartEntry] = {}
        """Those of `written`, which are few."""
        self.run_keys: set[bytes] = set()
        """Those of `written` that are of runs, as they are in the topic."""
        self.unreadable = 0
        """Values that could not be decoded when they were asked for: they count as not there."""
        self._head_key = b""
        self._head_bytes: bytes | None = None
        self._head: HeadEntry | None = None
        self._runs = Runs()
        self._is_stale = True
        """Whether `_runs` must be made from `written`: never asked for, or an entry is gone."""

    @property
    def is_empty(self) -> bool:
        return not (self.has_head or self.losses or self.written)

    @property
    def has_head(self) -> bool:
        return self._head_bytes is not None

    @property
    def head(self) -> HeadEntry | None:
        if self._head is None and self._head_bytes is not None:
            try:
                entry = decode(self._head_key, self._head_bytes)
            except WireError:
                self.unreadable += 1
                self._head_bytes = None
            else:
                self._head = entry if isinstance(entry, HeadEntry) else None
        return self._head

    @property
    def runs(self) -> Runs:
        if self._is_stale:
            self._is_stale = False
            self._runs.clear()
            counting = set(self.starts_in_force())
            for key in tuple(self.written):
                self._lay(key, counting)
        return self._runs

    def runs_after(self, entries: Iterable[SegmentEntry | Tombstone]) -> Runs:
        """What the runs would be once these were written."""
        after = LaneFold(self.lane)
        after.starts, after.written = self.starts.copy(), self.written.copy()
        for entry in entries:
            if isinstance(entry.key, RunsKey):
                after.written.pop(entry.key, None)
                if isinstance(entry, SegmentEntry):
                    after.written[entry.key] = entry.packed
        return after.runs

    def runs_written(self, key: RunsKey) -> WrittenRuns | None:
        """The entry of that key, decoded as far as it need be; None where that is not possible."""
        found = self.written[key]
        if isinstance(found, bytes):
            try:
                found = _parsed(key, found)
            except WireError:
                self.unreadable += 1
                del self.written[key]
                return None
            self.written[key] = found
        return None if isinstance(found, StartEntry) else found

    def starts_in_force(self) -> tuple[StartEntry, ...]:
        first: dict[int, StartEntry] = {}
        for start in self.starts.values():
            first.setdefault(start.position, start)
        return tuple(first[position] for position in sorted(first))

    def is_next_head(self, value: bytes) -> bool:
        """Take the value of the head's key, unless it may not be a head."""
        if not value.startswith(_HEAD_BEGINS):
            return False
        self._head_bytes, self._head = value, None
        return True

    def put_head(self, key: bytes, value: bytes) -> None:
        """The first head, or one that may not be one."""
        if not value.startswith(_HEAD_BEGINS):
            decode(key, value)
        self._head_key, self._head_bytes, self._head = key, value, None

    def put_runs(self, raw_key: bytes, key: RunsKey, value: bytes) -> None:
        if not value.startswith(_RUNS_BEGIN):
            raise WireError("ledger runs of no known version")
        self._forget(key)
        self.run_keys.add(raw_key)
        self.written[key] = value
        if not self._is_stale:
            self._lay(key, set())

    def put(self, entry: LossEntry | StartEntry) -> None:
        key = key_of(entry)
        if isinstance(entry, StartEntry):
            self._forget(entry.key)
            self.written[entry.key] = self.starts[entry.key] = entry
            if not self._is_stale:
                self._lay(entry.key, set(self.starts_in_force()))
        elif isinstance(key, LossKey):
            # Compaction keeps the last record of a key, so that is where it stands among them.
            self.losses.pop(key, None)
            self.losses[key] = entry

    def remove(self, key: HeadKey | LossKey | RunsKey | StartKey) -> None:
        match key:
            case HeadKey():
                self._head_bytes = self._head = None
            case LossKey():
                self.losses.pop(key, None)
            case _:
                self.run_keys.discard(encode_key(key))
                self._forget(key)

    def _forget(self, key: StartKey | RunsKey) -> None:
        # Taking one entry's part out of the runs would need all that it once replaced.
        self._is_stale |= self.written.pop(key, None) is not None
        if isinstance(key, StartKey):
            self.starts.pop(key, None)

    def _lay(self, key: StartKey | RunsKey, counting: set[StartEntry]) -> None:
        if isinstance(key, StartKey):
            if self.starts[key] in counting:
                self._runs.replace_from((self.starts[key].run,))
            return
        found = self.runs_written(key)
        if isinstance(found, PackedRuns) and found.is_coarse:
            self._runs.coarsen(found, found.end_position)
        elif isinstance(found, PackedRuns):
            self._runs.put(found, found.end_position, resumes=False)
        elif found is not None:
            self._lay_chunk(key.author, *found)

    def _lay_chunk(self, author: str, block: Block, end_position: int | None) -> None:
        if end_position is not None and only_raises(author):
            keeps = keeps_sources(author)
            block, end_position = raised(self._runs, block, end_position, keeps_sources=keeps)
        self._runs.put(block, end_position)


def _parsed(key: RunsKey, value: bytes) -> WrittenRuns:
    if value[0] == CHUNK_VERSION:
        return decode_block(key.position, value)
    return parse_packed(key.position, value)
