"""Do the ends of a source stand still: since when, and which do not. Driver only, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from heliograph.clock import monotonic_s
from heliograph.failover.steps import some_of
from heliograph.model import TopicName, TopicPartition

STILL_S: Final = 2.0
"""Ends that did not move for so long do not move."""


class EndsWatch:
    """Told again and again where partitions end: the high watermark, and the last stable offset
    asked for after it."""

    def __init__(self, ends: Mapping[TopicPartition, tuple[int, int]]) -> None:
        self._ends = dict(ends)
        self._since_s = monotonic_s()
        self._moved: frozenset[TopicName] = frozenset()

    def see(self, ends: Mapping[TopicPartition, tuple[int, int]]) -> None:
        moved = topics_of(at for at, end in ends.items() if self._ends.get(at) != end)
        if moved:
            self._since_s, self._moved = monotonic_s(), moved
        self._ends = dict(ends)

    @property
    def is_still(self) -> bool:
        return monotonic_s() - self._since_s >= STILL_S and not self._open()

    def sentence(self, source: str, waited_s: float) -> str:
        open_in = self._open()
        if open_in:
            return (
                f"a transaction is open in {some_of(sorted(open_in))} on {source}: end or abort "
                "it, then do this again"
            )
        return (
            f"producers still write to {source} after {waited_s:.0f} s: "
            f"{some_of(sorted(self._moved))}; stop them, then do this again"
        )

    def _open(self) -> frozenset[TopicName]:
        # A producer may write on between the two questions: then the stable offset is the larger
        # one, and no transaction is open.
        return topics_of(at for at, (end, stable) in self._ends.items() if stable < end)


def topics_of(partitions: Iterable[TopicPartition]) -> frozenset[TopicName]:
    return frozenset(partition.topic for partition in partitions)
