"""A fenced flow is carried by nobody: drivers leave it settled, and none takes it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from heliograph.acl import AclBinding, AclOperation, AclPattern, AclPermission
from heliograph.clock import now_ms
from heliograph.ledger.access import open_ledger
from heliograph.ledger.entries import AclEntry, Entry, Tombstone
from heliograph.ledger.fence import Fence, fence_entry, unfence_entry
from heliograph.ledger.lease import Activity
from heliograph.ledger.service import LedgerService
from heliograph.model import FlowId, TopicName
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.cluster.test_cli import heliograph
from tests.kit.clusters import TopicNames
from tests.kit.failing_over import Stage
from tests.kit.leasing import LeasesAside
from tests.kit.topics import create_topic, wait_until

FENCE = Fence(at_ms=1, why="failed over for a test")
LEASE_S = 3.0


class Busy:
    """A driver that carries the flow until the test says otherwise."""

    slot_count = 1

    def __init__(self) -> None:
        self.asked = 0
        self.is_done = False

    async def idle(self, flow: FlowId) -> None:
        self.asked += 1
        while not self.is_done:
            await asyncio.sleep(0.01)

    def has_left(self, flow: FlowId, topics: Collection[TopicName]) -> bool:
        return self.is_done


@pytest.fixture
def stage(pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path) -> Stage:
    made = Stage(folder=tmp_path, source=pair["A"], target=pair["B"], topic=topic("fenced"))
    create_topic(made.source, made.topic)
    return made


@contextmanager
def driver(
    stage: Stage, *, exclusive: bool = True, activity: Activity | None = None
) -> Iterator[LeasesAside]:
    made = LeasesAside(stage.config, lease_s=LEASE_S, exclusive=exclusive, activity=activity)
    with closing(made) as leases:
        leases.start()
        yield leases


def note(stage: Stage, entry: Entry | Tombstone) -> None:
    async def write() -> None:
        async with open_ledger(stage.config, stage.flow) as ledger:
            await ledger.store.write([entry])

    asyncio.run(write())


def holder_is_there(stage: Stage) -> bool:
    with closing(LedgerService(stage.config.clusters)) as ledgers:
        return ledgers.ask(stage.flow, lambda view: view.holder) is not None


def test_a_driver_stops_at_once_and_lets_the_lease_go_only_when_nothing_is_carried(
    stage: Stage,
) -> None:
    busy = Busy()
    with driver(stage, activity=busy) as leases:
        wait_until(lambda: leases.leads(stage.flow), "the driver to lead")

        note(stage, fence_entry(FENCE))
        began_s = time.monotonic()
        wait_until(lambda: not leases.leads(stage.flow), "the driver to stop", poll_s=0.01)
        stopped_s = time.monotonic() - began_s
        # Longer than the lease: a driver that still settles is not to be taken for dead.
        time.sleep(LEASE_S * 1.2)
        held = holder_is_there(stage)
        busy.is_done = True
        wait_until(lambda: not holder_is_there(stage), "the lease to be let go")

        assert stopped_s < 1.5
        assert held
        assert busy.asked > 0
        assert leases.fence(stage.flow) == FENCE


@pytest.mark.parametrize("exclusive", [True, False])
def test_no_driver_takes_a_fenced_flow_and_lifting_the_fence_lets_one_in(
    stage: Stage, exclusive: bool
) -> None:
    with driver(stage) as first:
        first.wait_known(10.0)
    note(stage, fence_entry(FENCE))
    with driver(stage, exclusive=exclusive) as leases:
        leases.wait_known(10.0)
        was_kept_out = not leases.leads(stage.flow) and not holder_is_there(stage)

        note(stage, unfence_entry())
        lifted_ms = now_ms()
        wait_until(lambda: leases.leads(stage.flow), "a driver to lead again")

        assert was_kept_out
        assert now_ms() - lifted_ms < 2_000
        assert leases.fence(stage.flow) is None


def test_the_ledger_command_shows_a_fence_and_the_acls_the_flow_created(stage: Stage) -> None:
    binding = AclBinding(
        name="orders",
        pattern=AclPattern.LITERAL,
        principal="User:alice",
        host="*",
        operation=AclOperation.READ,
        permission=AclPermission.ALLOW,
    )
    with driver(stage) as first:
        first.wait_known(10.0)
    note(stage, fence_entry(FENCE))
    note(stage, AclEntry(binding=binding, at_ms=1))

    short = heliograph("ledger", stage.file())
    long = heliograph("ledger", stage.file(), "--memos")
    (flow,) = heliograph("ledger", stage.file(), "--json").document["flows"]

    assert "ACLs it created: 1, memos: 1" in short.out
    assert FENCE.why not in short.out
    assert FENCE.why in long.out
    assert f"created ACL: {binding}" in long.out
    assert flow["acls"] == [str(binding)]
    assert [FENCE.why in text for text in flow["memos"].values()] == [True]
