"""The files of a Structured Streaming checkpoint that hold Kafka offsets. No I/O; runs anywhere.

Two layouts of the offsets log are in use. In `v1` each source of the query has a line, in order; in
`v2` (since Spark 4.2) each line begins with the source's number or name. The line before them is
Spark's own and is kept as it is. Neither layout says what kind a source is: its offset does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from heliograph.errors import CheckpointError
from heliograph.model import TopicName, TopicPartition

Positions = Mapping[TopicPartition, int]
"""The next offset a query would read of each partition."""
NO_OFFSET: Final = "-"
"""What Spark writes for a source that has not begun."""
_NAMED_SINCE: Final = 2
_INITIAL_VERSION: Final = 1
_VERSION: Final = re.compile(r"v([1-9][0-9]{0,8})")
_PARTITION: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_PARTITION_MAX: Final = 2**31 - 1
_OFFSET_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    source: str
    """The source's place among the query's sources, or its name."""
    text: str
    """Its offset as Spark wrote it."""

    @property
    def positions(self) -> Positions | None:
        """None where it is not an offset of Kafka's."""
        return None if self.text == NO_OFFSET else read_positions(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOffsets:
    """One file of the offsets log: where each source is after the batch."""

    version: int
    metadata: str
    lines: tuple[SourceLine, ...]

    def with_positions(self, changed: Mapping[str, Positions]) -> BatchOffsets:
        """The same, with other offsets for some sources."""
        return replace(
            self,
            lines=tuple(
                replace(line, text=write_positions(changed[line.source]))
                if line.source in changed
                else line
                for line in self.lines
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialOffsets:
    """`sources/…/0` of a Kafka source: where it began, asked for until a batch is committed."""

    head: bytes
    """All that is before the offset."""
    positions: Positions


def read_batch(content: bytes) -> BatchOffsets:
    """Raises `CheckpointError` for what Spark does not write."""
    lines = _text(content).split("\n")
    found = _VERSION.fullmatch(lines[0].strip())
    if found is None:
        raise CheckpointError("does not begin with the version of an offsets log")
    version = int(found[1])
    if version > _NAMED_SINCE:
        raise CheckpointError(f"version {version} of the offsets log is newer than this program")
    if len(lines) < 2:
        raise CheckpointError("is cut off after its first line")
    told = lines[2:]
    if told and not told[-1]:
        told.pop()  # Spark ends the file without a line break, editors do not.
    sources = tuple(
        _named(line) if version >= _NAMED_SINCE else SourceLine(source=str(number), text=line)
        for number, line in enumerate(told)
    )
    if len({line.source for line in sources}) < len(sources):
        raise CheckpointError("names a source twice")
    return BatchOffsets(version=version, metadata=lines[1], lines=sources)


def write_batch(batch: BatchOffsets) -> bytes:
    named = batch.version >= _NAMED_SINCE
    told = [f"{line.source}:{line.text}" if named else line.text for line in batch.lines]
    return "\n".join([f"v{batch.version}", batch.metadata, *told]).encode()


def read_initial(content: bytes) -> InitialOffsets | None:
    """None where it belongs to another kind of source; raises `CheckpointError`."""
    # Spark 2.1 wrote a length there, and all later ones a byte that keeps it able to read them.
    head, rest = content[:1], content[1:]
    if rest.startswith(b"v"):
        line, _, rest = rest.partition(b"\n")
        found = _VERSION.fullmatch(_text(line))
        if head != b"\0" or found is None:
            return None
        if int(found[1]) > _INITIAL_VERSION:
            raise CheckpointError(f"version {found[1]} is newer than this program")
        head += line + b"\n"
    positions = read_positions(_text(rest)) if rest.startswith(b"{") else None
    return None if positions is None else InitialOffsets(head=head, positions=positions)


def write_initial(initial: InitialOffsets) -> bytes:
    return initial.head + write_positions(initial.positions).encode()


def read_positions(text: str) -> Positions | None:
    """What `{"orders":{"0":12}}` says; None where it is nothing of the kind."""
    try:
        topics = json.loads(text, object_pairs_hook=_unique)
    # No JSON, a name twice, numbers too long for Python, brackets beyond the parser's stack.
    except (ValueError, RecursionError):
        return None
    if not isinstance(topics, dict) or not topics:
        return None
    found: dict[TopicPartition, int] = {}
    for topic, partitions in topics.items():
        if not isinstance(partitions, dict) or not partitions:
            return None
        for partition, offset in partitions.items():
            # JSON's true would pass as an int.
            if _PARTITION.fullmatch(partition) is None or type(offset) is not int:
                return None
            if int(partition) > _PARTITION_MAX or not -_OFFSET_MAX <= offset <= _OFFSET_MAX:
                return None
            found[TopicPartition(topic=TopicName(topic), partition=int(partition))] = offset
    return found


def write_positions(positions: Positions) -> str:
    """As Spark writes it, with topics and partitions in the order given."""
    topics: dict[str, dict[str, int]] = {}
    for partition, offset in positions.items():
        topics.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return json.dumps(topics, separators=(",", ":"), ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """Which batches of a checkpoint its query needs to go on."""

    latest: int
    previous: int | None
    """Where the latest one started; None where it was the first."""
    is_committed: bool
    """Whether the latest one is done; otherwise the query runs it again, over the same records."""
    commits: tuple[int, ...]

    @property
    def kept(self) -> tuple[int, ...]:
        return (self.latest,) if self.previous is None else (self.previous, self.latest)


def choose_batches(planned: Iterable[int], committed: Iterable[int]) -> Batches | None:
    """From the names in `offsets` and `commits`; None where no batch was ever planned."""
    offsets, commits = sorted(planned), sorted(committed)
    if not offsets:
        if commits:
            raise CheckpointError(f"has commits/{commits[-1]} and nothing in offsets")
        return None
    latest, done = offsets[-1], commits[-1] if commits else -1
    if done > latest:
        raise CheckpointError(f"has commits/{done} and no offsets/{done}")
    # Not always the number before: a query that tracks progress asynchronously leaves some out.
    previous = offsets[-2] if len(offsets) > 1 else None
    if previous is None and latest > 0 and done < latest:
        raise CheckpointError(
            f"has offsets/{latest}, which is not committed, and not the batch before it"
        )
    first = min(done, latest if previous is None else previous)
    return Batches(
        latest=latest,
        previous=previous,
        is_committed=done == latest,
        commits=tuple(batch for batch in commits if batch >= first),
    )


def _named(line: str) -> SourceLine:
    source, colon, text = line.partition(":")
    if not colon or not source:
        raise CheckpointError("has a line that names no source")
    return SourceLine(source=source, text=text)


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as exc:
        raise CheckpointError("is not text") from exc


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a name twice")
    return made
