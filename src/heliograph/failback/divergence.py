"""Where two histories of a topic part after a failover, and what to do about it. Pure; driver only.

Source and target are those of the flow that was failed over: the source is the old primary that is
back, the target the present one. `docs/guides` calls them A and B.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from heliograph.errors import WireError
from heliograph.model import TopicId, TopicName, TopicPartition

FACTS_VERSION: Final = 1


class Choice(StrEnum):
    """What the operator wants where histories have parted."""

    NONE = "none"
    RESYNC = "resync"
    WIPE = "wipe"


class Resolution(StrEnum):
    CONTINUE = "goes on"
    """Nothing parted: the source's log is continued."""
    APPEND = "appended by the map"
    """What the target has more goes behind what only the source has."""
    RECREATE = "deleted, copied from the parting"
    """Offsets stay the same, which a log that cannot be cut does not allow otherwise."""
    WIPE = "deleted, copied whole"
    LEAVE = "stays, only there"
    """The target has no such topic."""
    NEW = "will be created"
    """The source has no such topic."""


DELETING: Final = frozenset({Resolution.RECREATE, Resolution.WIPE})
_HANDLED_BY_FLOW: Final = frozenset({Resolution.LEAVE, Resolution.NEW})


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionParting:
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
    partitions: tuple[PartitionParting, ...]
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
    topic: TopicDivergence, divergence: PartitionParting, chosen: Resolution, *, preserve: bool
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
    """Topics that nothing can be done with until somebody chooses."""
    return tuple(each for each in topics if treatment(each, choice, preserve=False) is None)


def in_partition(topic: TopicDivergence, divergence: PartitionParting) -> TopicPartition:
    return TopicPartition(topic=topic.topic, partition=divergence.partition)


# -- as facts of a step: JSON, and short, for a memo has a limit and a topic many partitions


def to_facts(topic: TopicDivergence) -> dict[str, Any]:
    return {
        "v": FACTS_VERSION,
        "source_id": topic.source_topic_id,
        "target_id": topic.target_topic_id,
        "recreated": topic.is_recreated,
        "replicas": topic.replication_factor,
        "configs": dict(topic.configs),
        "seedable": topic.is_seedable,
        "partitions": [_row(partition) for partition in topic.partitions],
    }


def from_facts(name: str, facts: Mapping[str, Any]) -> TopicDivergence:
    try:
        return TopicDivergence(
            topic=TopicName(name),
            source_topic_id=_topic_id(facts["source_id"]),
            target_topic_id=_topic_id(facts["target_id"]),
            partitions=tuple(_partition(row) for row in facts["partitions"]),
            is_recreated=bool(facts["recreated"]),
            replication_factor=int(facts["replicas"]),
            configs={str(k): str(v) for k, v in facts["configs"].items()},
            is_seedable=bool(facts["seedable"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise WireError(f"the ledger's memo of where {name} parts makes no sense") from exc


def _topic_id(value: Any) -> TopicId | None:
    return None if value is None else TopicId(str(value))


def _row(each: PartitionParting) -> list[int | str | None]:
    return [
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
    ]


def _partition(row: Sequence[Any]) -> PartitionParting:
    *numbers, note = row
    known = [None if number is None else int(number) for number in numbers]
    partition, start, end, target_start, target_end, position, *counts = known
    source_offset, target_offset, unmirrored, expired, identical = (int(n or 0) for n in counts)
    return PartitionParting(
        partition=int(partition or 0),
        source_start=start,
        source_end=end,
        target_start=target_start,
        target_end=target_end,
        position=position,
        source_offset=source_offset,
        target_offset=target_offset,
        unmirrored_records=unmirrored,
        expired_records=expired,
        is_identical=bool(identical),
        note=str(note),
    )
