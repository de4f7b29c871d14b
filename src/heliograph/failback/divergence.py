"""Where two histories of a topic part after a failover, and what to do then. No I/O; driver only.

Source and target are those of the flow that was failed over: the source is the old primary that is
back, the target the present one. `docs/guides` calls them A and B.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from heliograph.model import TopicId, TopicName, TopicPartition

PART_VERSION: Final = 1
_Row = tuple[
    int,  # partition
    int | None,  # source start
    int | None,  # source end
    int | None,  # target start
    int | None,  # target end
    int | None,  # position
    int,  # source offset
    int,  # target offset
    int,  # unmirrored records
    int,  # expired records
    int,  # 1 where offsets are identical
    str,  # note
]


class Choice(StrEnum):
    """What the operator wants where logs have diverged."""

    NONE = "none"
    RESYNC = "resync"
    WIPE = "wipe"


class Resolution(StrEnum):
    CONTINUE = "continue"
    """Nothing diverged: the source's log is continued."""
    APPEND = "append the difference"
    """What the target has more goes behind what only the source has."""
    RECREATE = "recreate from divergence point"
    """Offsets stay the same, which a log that cannot be cut does not allow otherwise."""
    WIPE = "recreate, copy everything"
    LEAVE = "keep (only on {source})"
    """The target has no such topic."""
    NEW = "create"
    """The source has no such topic."""

    def text(self, source: str) -> str:
        """As a table shows it."""
        return self.value.format(source=source)


DELETING: Final = frozenset({Resolution.RECREATE, Resolution.WIPE})
_HANDLED_BY_FLOW: Final = frozenset({Resolution.LEAVE, Resolution.NEW})


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDivergence:
    """One partition, as both sides and the ledger have it; None where there is none."""

    partition: int
    source_start: int | None
    source_end: int | None
    target_start: int | None
    target_end: int | None
    position: int | None
    """Up to where both have the same records; None where they have nothing in common."""
    source_offset: int
    """The first on the source that the target does not have."""
    target_offset: int
    """The first on the target that the source does not have."""
    unmirrored_records: int = 0
    """On the source, from `source_offset` on."""
    expired_records: int = 0
    """Mirrored ones that the target has deleted since: only the source has them."""
    is_identical: bool = False
    """Whether both sides have the same offsets up to there."""
    note: str = ""

    @property
    def source_records(self) -> int:
        return 0 if self.source_start is None else (self.source_end or 0) - self.source_start

    @property
    def has_diverged(self) -> bool:
        return self.unmirrored_records > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDivergence:
    topic: TopicName
    source_topic_id: TopicId | None
    """None where the source has no such topic."""
    target_topic_id: TopicId | None
    partitions: tuple[PartitionDivergence, ...]
    is_recreated: bool = False
    """Whether one side's topic is another one than the ledger knows."""
    replication_factor: int = -1
    """Of the source's topic."""
    configs: Mapping[str, str] = field(default_factory=dict)
    """What the source's topic was given."""
    is_seedable: bool = True
    """Whether the beginning of its partitions can be deleted; not so if it is only compacted."""

    @property
    def source_partition_count(self) -> int:
        return sum(each.source_end is not None for each in self.partitions)

    @property
    def unmirrored_records(self) -> int:
        return sum(each.unmirrored_records for each in self.partitions)

    @property
    def source_records(self) -> int:
        """Offsets that the source's logs hold; a count of records where there are no gaps."""
        return sum(each.source_records for each in self.partitions)

    @property
    def expired_records(self) -> int:
        return sum(each.expired_records for each in self.partitions)

    @property
    def has_diverged(self) -> bool:
        return any(each.has_diverged for each in self.partitions)

    @property
    def is_identical(self) -> bool:
        """Whether every partition that both sides have records of has the same offsets."""
        shared = [
            each
            for each in self.partitions
            if each.source_end is not None and (each.position is not None or each.source_records)
        ]
        return bool(shared) and all(each.is_identical for each in shared)

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(
            f"{self.topic}-{each.partition}: {each.note}" for each in self.partitions if each.note
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """Where the lane back begins."""

    position: int
    source_offset: int
    """On the present primary, which is the source of the way back."""
    seed_to: int | None
    """Where the old primary's empty partition is to begin; None where it is taken as it is."""
    keeps_map: bool
    """Whether what was mirrored before is still known at the same offsets."""


def treatment(topic: TopicDivergence, choice: Choice, *, preserve: bool) -> Resolution | None:
    """What becomes of the topic; None where the operator has to choose.

    `preserve` says whether the way back is to keep offsets.
    """
    if topic.source_topic_id is None:
        return Resolution.NEW
    if topic.target_topic_id is None:
        return Resolution.LEAVE
    if choice is Choice.WIPE:
        return Resolution.WIPE
    if not topic.has_diverged:
        return Resolution.CONTINUE
    if choice is Choice.NONE:
        return None
    keeps_offsets = preserve and topic.is_identical and topic.is_seedable
    return Resolution.RECREATE if keeps_offsets else Resolution.APPEND


def beginning(
    topic: TopicDivergence, divergence: PartitionDivergence, chosen: Resolution, *, preserve: bool
) -> Beginning | None:
    """Where one lane of the way back begins; None where the flow finds that out by itself."""
    if (
        chosen in _HANDLED_BY_FLOW
        or divergence.target_start is None
        or divergence.source_end is None
    ):
        return None
    if divergence.position is None or chosen is Resolution.WIPE:
        may_seed = preserve and topic.is_seedable
        is_empty = chosen in DELETING or not divergence.source_records
        return Beginning(
            position=0,
            source_offset=divergence.target_start,
            seed_to=divergence.target_start if may_seed and is_empty else None,
            keeps_map=False,
        )
    return Beginning(
        position=divergence.position,
        source_offset=divergence.target_offset,
        seed_to=divergence.source_offset if chosen is Resolution.RECREATE else None,
        keeps_map=True,
    )


def undecided(topics: Iterable[TopicDivergence], choice: Choice) -> tuple[TopicDivergence, ...]:
    """Topics that nothing can be done with until the operator chooses."""
    return tuple(each for each in topics if treatment(each, choice, preserve=False) is None)


def in_partition(topic: TopicDivergence, divergence: PartitionDivergence) -> TopicPartition:
    return TopicPartition(topic=topic.topic, partition=divergence.partition)


# -- as the step that finds it records it: short, for a memo has a limit and a topic many partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergencePart:
    """A topic without its name, in the fields of the ledger's memo."""

    v: int
    source_id: TopicId | None
    target_id: TopicId | None
    recreated: bool
    replicas: int
    configs: Mapping[str, str]
    seedable: bool
    partitions: tuple[_Row, ...]

    def topic(self, name: str) -> TopicDivergence:
        return TopicDivergence(
            topic=TopicName(name),
            source_topic_id=self.source_id,
            target_topic_id=self.target_id,
            partitions=tuple(map(_partition, self.partitions)),
            is_recreated=self.recreated,
            replication_factor=self.replicas,
            configs=self.configs,
            is_seedable=self.seedable,
        )


def recorded(topic: TopicDivergence) -> DivergencePart:
    """`DivergencePart.topic` gives an equal topic back."""
    return DivergencePart(
        v=PART_VERSION,
        source_id=topic.source_topic_id,
        target_id=topic.target_topic_id,
        recreated=topic.is_recreated,
        replicas=topic.replication_factor,
        configs=topic.configs,
        seedable=topic.is_seedable,
        partitions=tuple(map(_row, topic.partitions)),
    )


def _row(each: PartitionDivergence) -> _Row:
    return (
        each.partition,
        each.source_start,
        each.source_end,
        each.target_start,
        each.target_end,
        each.position,
        each.source_offset,
        each.target_offset,
        each.unmirrored_records,
        each.expired_records,
        int(each.is_identical),
        each.note,
    )


def _partition(row: _Row) -> PartitionDivergence:
    return PartitionDivergence(
        partition=row[0],
        source_start=row[1],
        source_end=row[2],
        target_start=row[3],
        target_end=row[4],
        position=row[5],
        source_offset=row[6],
        target_offset=row[7],
        unmirrored_records=row[8],
        expired_records=row[9],
        is_identical=bool(row[10]),
        note=row[11],
    )
