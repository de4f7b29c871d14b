"""What clients wrote to a partition, and what of it is on the target: by each record's number."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.sim.records import Made


class Violation(Exception):
    """A promise that was not kept."""


@dataclass(slots=True)
class Written:
    """One record of the source's log."""

    made: Made
    partition: int
    offset: int
    topic_number: int
    """Which topic of that name: one that was created again has another."""
    transaction: list[str] | None
    """Of one value: `open`, `committed` or `aborted`; None for a record outside any."""
    is_lost: bool = False
    """Whether an unclean election took it, or it never was replicated."""

    @property
    def is_committed(self) -> bool:
        return self.transaction is None or self.transaction[0] == "committed"

    @property
    def was_committed(self) -> bool:
        """Whether it was read as committed by who read it before the source lost the marker."""
        return self.transaction is not None and "was committed" in self.transaction

    @property
    def is_open(self) -> bool:
        return self.transaction is not None and self.transaction[0] == "open"


@dataclass(slots=True)
class Copied:
    target_offset: int
    position: int
    written: Written
    gap: int
    """Records left out before it: an unclean election of the target took them."""


@dataclass(slots=True)
class LaneTruth:
    """What is on the source, by offset, and what is on the target, in its order."""

    source: dict[int, Written] = field(default_factory=dict)
    earlier: dict[int, dict[int, Written]] = field(default_factory=dict)
    """Of topics of that name that are gone."""
    copied: list[Copied] = field(default_factory=list)
    topic_number: int = 0
    source_committed: int = 0
    """The high watermark of the source, the highest there was since records were lost."""
    parted_at: int | None = None
    """Where the source lost records that were copied."""
    source_lost: bool = False
    """Whether the source lost anything, copied or not."""
    target_lost: bool = False
    """Whether the target lost records that were copied and replicated."""

    @property
    def gaps(self) -> int:
        """Records that are missing after such a loss: the mirror must say so."""
        return sum(each.gap for each in self.copied)

    def note_parting(self) -> None:
        copied = [each.written for each in self.copied if each.written.is_lost]
        lost = [each.offset for each in copied if each.topic_number == self.topic_number]
        self.parted_at = min(lost, default=None)
