"""A flow's ledger held by one command for a moment, so that no driver works on it. Driver only."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.cluster import Cluster, open_cluster
from heliograph.clock import now_ms
from heliograph.config.schema import MirrorConfig
from heliograph.errors import BrokerError, LeaderMoved, MirrorError
from heliograph.ledger.entries import LEDGER_PARTITIONS, LeaseEntry, ledger_topic
from heliograph.ledger.store import LedgerStore
from heliograph.ledger.view import LedgerView
from heliograph.model import FlowId

_LEASE_MS: Final = 300_000
"""Longer than anything is written here; it is let go at the end."""


@dataclass(frozen=True, slots=True)
class OpenLedger:
    target: Cluster
    store: LedgerStore


@asynccontextmanager
async def open_ledger(config: MirrorConfig, flow: FlowId) -> AsyncIterator[OpenLedger]:
    """To read it; the topic must be there."""
    target = open_cluster(config.target_of(flow), "producer")
    store = LedgerStore(target, ledger_topic(flow.source))
    try:
        yield OpenLedger(target, store)
    finally:
        await store.close()
        target.close()


@asynccontextmanager
async def read_ledger(config: MirrorConfig, flow: FlowId) -> AsyncIterator[OpenLedger]:
    """As `open_ledger`, read to its end. Raises `BrokerError` where nothing was mirrored yet."""
    async with open_ledger(config, flow) as ledger:
        try:
            await ledger.store.catch_up()
        except LeaderMoved as exc:
            require_ledger(ledger.target, flow, exc)
            raise
        yield ledger


def require_ledger(target: Cluster, flow: FlowId, exc: LeaderMoved) -> None:
    """Tells a ledger that was never there from one that has no leader at the moment."""
    if target.topic(ledger_topic(flow.source)) is None:
        raise BrokerError(
            f"cluster {target.alias}: no ledger of {flow}, nothing was mirrored yet"
        ) from exc


@asynccontextmanager
async def lease_ledger(config: MirrorConfig, flow: FlowId) -> AsyncIterator[OpenLedger]:
    """To write it; made if there is none. Raises `MirrorError` while a driver leads the flow."""
    ClusterAdmin(config.target_of(flow)).ensure_compacted_topic(
        ledger_topic(flow.source),
        partitions=LEDGER_PARTITIONS,
        replication_factor=config.flow(flow).replication_factor,
    )
    async with open_ledger(config, flow) as ledger:
        lease = await _claimed(ledger.store, flow)
        try:
            yield ledger
        finally:
            await ledger.store.write([replace(lease, at_ms=now_ms(), lease_ms=0)])


async def _claimed(store: LedgerStore, flow: FlowId) -> LeaseEntry:
    await store.catch_up()
    require_unled(store.view, flow)
    lease = LeaseEntry(
        author=store.author,
        host=socket.gethostname(),
        pid=os.getpid(),
        at_ms=now_ms(),
        lease_ms=_LEASE_MS,
        slot_count=0,
    )
    await store.write([lease])
    # A driver that started at this moment may have been first; then it leads.
    await store.catch_up()
    if store.view.holder is None or store.view.holder.author != store.author:
        await store.write([replace(lease, lease_ms=0)])
        require_unled(store.view, flow)
    return lease


def require_unled(view: LedgerView, flow: FlowId) -> None:
    """Raises `MirrorError` while a driver carries the flow, by its own last word."""
    holder = view.holder
    left_ms = 0 if holder is None else holder.until_ms - now_ms()
    if holder is not None and left_ms >= 0:
        raise MirrorError(
            f"{flow} is carried by {holder.host} pid {holder.pid}; stop it first "
            f"(one that was killed is given up for dead in {left_ms / 1000:.0f} s)"
        )
