"""Lanes that a flow should have and that have not begun, and what they wait for. Runs on the
driver.

The ledger knows a lane from its first start on, so these are found by what is configured: topics of
the source, less what has begun.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from heliograph.broker.blocking import blocking
from heliograph.broker.cluster import EARLIEST, LATEST, Cluster
from heliograph.config.schema import FlowConfig
from heliograph.ledger.locations import Wanted
from heliograph.ledger.view import LedgerView
from heliograph.model import (
    LaneId,
    OnExisting,
    StallReason,
    StartAt,
    TopicName,
    TopicPartition,
)
from heliograph.topics.selection import Choice, select_topics
from heliograph.words import counted

FOR_ADOPT: Final = "waiting: adopt"
FOR_TOPIC: Final = "waiting: not created"
FOR_DRIVER: Final = "waiting: not begun"
NOT_EMPTY: Final = f"stalled: {StallReason.TARGET_NOT_EMPTY.value}"


class Adoption(Protocol):
    """What of one flow MirrorMaker 2 has mirrored and `heliograph adopt` has not taken over."""

    def partitions(
        self, target_topics: Collection[TopicName], view: LedgerView
    ) -> frozenset[TopicPartition]:
        """By source partition; may block. Raises `BrokerError`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingLane:
    lane: LaneId
    target: TopicPartition
    state: str
    detail: str
    lag_records: int | None
    """What the source holds; None where it is unknown how much of it is on the target."""

    @property
    def needs_operator(self) -> bool:
        """The others begin by themselves while a driver mirrors the flow."""
        return self.state in (FOR_ADOPT, NOT_EMPTY)


async def waiting_lanes(
    flow: FlowConfig,
    source: Cluster,
    target: Cluster,
    view: LedgerView,
    wanted: Wanted,
    adoption: Adoption | None,
    choice: Choice = lambda _: None,
) -> tuple[WaitingLane, ...]:
    """In order of topic and partition; raises `BrokerError`."""
    seen = await source.refresh_all()
    there = await target.refresh_all()
    unadopted: frozenset[TopicPartition] = frozenset()
    if adoption is not None:
        unadopted = await blocking(adoption.partitions, there.keys(), view)
    begun = view.begun()
    targets = {
        partition: TopicPartition(topic=renamed, partition=partition.partition)
        for name, renamed in select_topics(flow, seen, choice).mirrored
        if wanted(name)
        for partition in _partitions(name, seen[name].partition_count)
        if partition not in begun
    }
    created = {
        to
        for to in targets.values()
        if to.topic in there and to.partition < there[to.topic].partition_count
    }
    holds = await _held(target, created) if flow.on_existing is OnExisting.REFUSE else {}
    is_whole = flow.start_at is StartAt.EARLIEST and flow.start_group is None
    lags = await _held(source, targets) if is_whole else {}
    return tuple(
        _waiting(
            LaneId(flow=flow.id, source=at),
            to,
            is_unadopted=at in unadopted,
            is_created=to in created,
            held=holds.get(to),
            lag_records=lags.get(at),
        )
        for at, to in sorted(targets.items())
    )


def _partitions(topic: TopicName, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic=topic, partition=number) for number in range(count)]


async def _held(
    cluster: Cluster, partitions: Collection[TopicPartition]
) -> Mapping[TopicPartition, int]:
    """Offsets between first and end; partitions that do not tell are left out."""
    first = await cluster.list_offsets(partitions, EARLIEST)
    end = await cluster.list_offsets(partitions, LATEST)
    held: dict[TopicPartition, int] = {}
    for at in partitions:
        lowest, highest = first.get(at), end.get(at)
        if isinstance(lowest, int) and isinstance(highest, int):
            held[at] = highest - lowest
    return held


def _waiting(
    lane: LaneId,
    target: TopicPartition,
    *,
    is_unadopted: bool,
    is_created: bool,
    held: int | None,
    lag_records: int | None,
) -> WaitingLane:
    if is_unadopted:
        state, detail = FOR_ADOPT, "mirrored by MirrorMaker 2; `heliograph adopt` takes it over"
    elif not is_created:
        state, detail = FOR_TOPIC, f"{target} is not on the target yet"
    elif held:
        state = NOT_EMPTY
        records = counted(held, "record")
        detail = f"{target} holds {records} this flow did not write, and on.existing = refuse"
    else:
        state, detail = FOR_DRIVER, ""
    return WaitingLane(
        lane=lane,
        target=target,
        state=state,
        detail=detail,
        lag_records=None if is_unadopted else lag_records,
    )
