"""What an operation is: a name, how often it is drawn, what it needs, what it does."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.campaign.plan import PIPELINE
from tests.campaign.world import World

Detail = Mapping[str, object]
Perform = Callable[[World, random.Random], Detail]


class NotNow(Exception):
    """The operation makes no sense as things stand: there is nothing it could be done to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    name: str
    family: str
    perform: Perform
    weight: float = 1.0
    brokers_min: int = 1
    spark: bool = False
    """Whether it needs processes of Spark's own."""


def one_channel_topic(
    world: World, chance: random.Random, *, but: tuple[str, ...] = (PIPELINE,)
) -> tuple[str, str]:
    """A workload and one of its topics; unless asked for, none that no lane carries."""
    every = [
        (workload, topic)
        for workload in world.workloads
        if workload not in but
        for topic in sorted(world.topics[workload])
    ]
    if not every:
        raise NotNow(f"no topic but those of {', '.join(but)}")
    return chance.choice(every)
