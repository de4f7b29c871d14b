"""Everything that a campaign can do, by name."""

from __future__ import annotations

from typing import Final

from tests.campaign.operations import brokers, clients, credentials, mirror, network, topics
from tests.campaign.operations.kind import Kind
from tests.campaign.plan import PIPELINE, WORKLOADS, Plan, plan_of
from tests.campaign.world import Size

EVERY: Final[dict[str, Kind]] = {
    kind.name: kind
    for kinds in (
        mirror.KINDS,
        brokers.KINDS,
        topics.KINDS,
        clients.KINDS,
        network.KINDS,
        credentials.KINDS,
    )
    for kind in kinds
}


def possible(size: Size) -> list[Kind]:
    """Those that a world of this size can do; a plan is drawn from them."""
    return [
        kind
        for kind in EVERY.values()
        if size.brokers >= kind.brokers_min and (size.spark or not kind.spark)
    ]


def drawn_plan(seed: int, count: int, size: Size) -> Plan:
    """The plan of a seed for a world of this size."""
    kinds = possible(size)
    workloads = [each for each in WORKLOADS if size.spark or each != PIPELINE]
    names, weights = [kind.name for kind in kinds], [kind.weight for kind in kinds]
    return plan_of(seed, count, names, weights, workloads)
