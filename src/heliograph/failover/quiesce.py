"""Bring a flow to rest: raise its fence, wait for its driver and its lanes to stop. Driver only.

A driver that lives sees the fence within a second, settles what is on its way and lets its lease
go; of a fence of some topics it keeps the lease, and says that it let these topics go. One that is
dead is waited for until its lease is over, as any other driver would. Then two looks at the lanes
must be the same: a driver without a lease shows only there.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from heliograph.clock import monotonic_s, now_ms
from heliograph.config.schema import FlowConfig
from heliograph.errors import RecoveryRefused
from heliograph.ledger.access import OpenLedger
from heliograph.ledger.entries import LeaseEntry
from heliograph.ledger.fence import (
    Fence,
    are_kept,
    fence_entry,
    fence_of,
    topic_fence_entry,
    topic_fences,
)
from heliograph.ledger.holder import HolderWatch, is_gone
from heliograph.ledger.locations import LaneLocation, Wanted, locate_lanes
from heliograph.model import FlowId, TopicName, TopicPartition

LET_GO_S_MAX: Final = 60.0
"""A driver that lives and keeps its lease for so long is not going to let go."""
STILL_S_MAX: Final = 20.0
_LOOK_S: Final = 0.1
_STILL_S: Final = 0.3
_ID_BYTES: Final = 8

Tell = Callable[[str], None]


async def raise_fence(ledger: OpenLedger, flow: FlowId, mode: str) -> Fence:
    """The flow's fence; one that is there already stays as it is."""
    await ledger.store.catch_up()
    fence = fence_of(ledger.store.view)
    if fence is None:
        fence = _new_fence(flow, mode)
        await ledger.store.write_or_refuse([fence_entry(fence)])
    return fence


async def raise_topic_fences(
    ledger: OpenLedger, flow: FlowId, mode: str, topics: Collection[TopicName]
) -> Mapping[TopicName, Fence]:
    """The fences of these topics; those that are there already stay as they are."""
    await ledger.store.catch_up()
    there = topic_fences(ledger.store.view)
    new = {
        topic: replace(_new_fence(flow, mode), id=secrets.token_hex(_ID_BYTES))
        for topic in topics
        if topic not in there
    }
    await ledger.store.write_or_refuse(
        [topic_fence_entry(topic, fence) for topic, fence in new.items()]
    )
    return {topic: new.get(topic) or there[topic] for topic in topics}


def _new_fence(flow: FlowId, mode: str) -> Fence:
    at_ms = now_ms()
    at = datetime.fromtimestamp(at_ms / 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Fence(
        at_ms=at_ms,
        why=f"failed over to {flow.target} at {at} ({mode}); `heliograph failback` brings it back",
        planned=True if mode == "planned" else None,
    )


async def wait_no_leader(
    ledger: OpenLedger, flow: FlowId, tell: Tell, fences: Collection[Fence] = ()
) -> str:
    """Until no driver leads the flow; what became of the one that did, as a sentence.

    With `fences` of single topics a driver may go on leading: then until the one that does has
    said that none of its slots has a lane of theirs.
    """
    watch, told, began_s = HolderWatch(), "", monotonic_s()
    last: LeaseEntry | None = None
    while True:
        await ledger.store.catch_up()
        holder = ledger.store.view.holder
        if holder is None:
            return "no driver led it" if last is None else f"{_name(last)} let go"
        if fences and are_kept(ledger.store.view, fences, holder.author):
            return f"{_name(holder)} let these topics go"
        if is_gone(holder):
            return f"{_name(holder)} is gone"
        watch.see(holder)
        if watch.left_s <= 0:
            return f"the lease of {_name(holder)} is over"
        if monotonic_s() - began_s > LET_GO_S_MAX:
            raise RecoveryRefused(
                f"{flow} is still mirrored by {_name(holder)} after {LET_GO_S_MAX:.0f} s: stop "
                "that driver, then do this again"
            )
        if told != holder.author:
            told, last = holder.author, holder
            tell(
                f"waiting for {_name(holder)} to let go (its lease expires in {watch.left_s:.0f} s)"
            )
        await asyncio.sleep(_LOOK_S)


async def wait_idle(
    ledger: OpenLedger, flow: FlowConfig, tell: Tell, wanted: Wanted
) -> Mapping[TopicPartition, LaneLocation]:
    """Until two looks at the lanes are the same; where they are, by source partition."""
    began_s, is_told = monotonic_s(), False
    before = await locate_lanes(flow, ledger.target, ledger.store, wanted)
    while True:
        await asyncio.sleep(_STILL_S)
        now = await locate_lanes(flow, ledger.target, ledger.store, wanted)
        moving = _moving(before, now)
        if not moving:
            return {location.lane.source: location for location in now}
        if monotonic_s() - began_s > STILL_S_MAX:
            some = ", ".join(str(lane) for lane in moving[:3])
            raise RecoveryRefused(
                f"{flow.id}: {len(moving)} lanes still move though no driver holds the lease, such "
                f"as {some}: stop the driver that runs with --no-lease, then run this command again"
            )
        if not is_told:
            is_told = True
            tell(f"{len(moving)} lanes still settle")
        before = now


def _moving(before: Sequence[LaneLocation], now: Sequence[LaneLocation]) -> list[TopicPartition]:
    was = {location.lane: location.position for location in before}
    return [location.lane.source for location in now if was.get(location.lane) != location.position]


def _name(holder: LeaseEntry) -> str:
    return f"the driver on {holder.host} (pid {holder.pid})"
