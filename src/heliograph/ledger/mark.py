"""How batches of a flow are known as its own without its ledger. Runs on driver and executors.

A flow's producer is named in its ledger and nowhere else. Should that be lost, nothing would tell
what the flow mirrored from what others wrote, and all of it would be copied once more. So every
producer of a flow has an epoch of the flow's own, which each of its batches carries. A broker takes
any epoch of a producer that it does not know.
"""

from __future__ import annotations

import hashlib
from typing import Final

from heliograph.broker.cluster import Cluster
from heliograph.ledger.entries import Entry, FlowEntry
from heliograph.ledger.view import LedgerView
from heliograph.model import FlowId

LOWEST_MARK: Final = 1 << 14
"""Idempotent producers of others begin with 0 and count up by one for each trouble they had."""
_COUNT: Final = (1 << 14) - 1


def mark_of(flow: FlowId) -> int:
    """The same for all producers of the flow: by its source, as the ledger's name is."""
    digest = hashlib.sha256(flow.source.encode()).digest()
    return LOWEST_MARK + int.from_bytes(digest[:4]) % _COUNT


async def new_flow_producer(target: Cluster, flow: FlowId) -> tuple[int, int]:
    """A producer id nobody else has, and the epoch to use it with."""
    producer_id, _ = await target.new_producer_id()
    return producer_id, mark_of(flow)


def renewed(view: LedgerView, new: FlowEntry) -> list[Entry]:
    """What makes `new` the flow's producer. Those it had before stay listed, behind it.

    The first one in the log counts, and an entry that is written again stands where it was written
    last. Batches of an earlier producer are in the target's log for as long as retention lets them:
    a flow that reads them there must still learn that a mirror wrote them.
    """
    return [new, *view.producers]
