"""What a campaign does, as a pure function of its seed: no clock, no cluster, no machine in it.

Each seed draws a random subset of the kinds of operations and of the workloads, so that rare
combinations meet each other alone now and then, and not always in the noise of all others.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

PIPELINE: Final = "pipeline"
"""A query of Spark's over the source's records; the one workload that no lane carries."""
WORKLOADS: Final = ("plain", "compacted", "transactional", "foreign", "changed", "both", PIPELINE)
_WORKLOAD_SHARE: Final = 0.7
_KIND_SHARE: Final = 0.65
_WORKLOADS_MIN, _KINDS_MIN = 2, 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing that is done to the world."""

    index: int
    kind: str
    pause: float
    """How long to wait before it, as a factor of the mean pause."""
    seed: int
    """What it draws its own choices from: which broker, how long, how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    seed: int
    kinds: tuple[str, ...]
    workloads: tuple[str, ...]
    operations: tuple[Operation, ...]

    def prefix(self, count: int) -> Plan:
        """The same campaign, ended earlier."""
        return self.part(0, count)

    def part(self, start: int, count: int) -> Plan:
        """These alone, which begin on a world of their own."""
        return replace(self, operations=self.operations[start : start + count])


def plan_of(
    seed: int,
    count: int,
    kinds: Sequence[str],
    weights: Sequence[float],
    workloads: Sequence[str] = WORKLOADS,
) -> Plan:
    """Kinds and workloads are those that the machine can do; the plan of fewer operations is a
    prefix of it."""
    drawn = random.Random(f"swarm {seed}")
    drawn_workloads = _some(drawn, workloads, _WORKLOAD_SHARE, _WORKLOADS_MIN)
    chosen = _some(drawn, kinds, _KIND_SHARE, min(_KINDS_MIN, len(kinds)))
    weight = dict(zip(kinds, weights, strict=True))
    chance = random.Random(f"operations {seed}")
    operations = [
        Operation(
            index=index,
            kind=chance.choices(chosen, [weight[kind] for kind in chosen])[0],
            pause=chance.expovariate(1.0),
            seed=chance.getrandbits(32),
        )
        for index in range(count)
    ]
    return Plan(seed=seed, kinds=chosen, workloads=drawn_workloads, operations=tuple(operations))


def _some(chance: random.Random, every: Sequence[str], share: float, least: int) -> tuple[str, ...]:
    """A random subset, in the order given."""
    drawn: Iterable[str] = [each for each in every if chance.random() < share]
    kept = set(drawn)
    while len(kept) < least:
        kept.add(chance.choice(every))
    return tuple(each for each in every if each in kept)
