"""What a shuttle promises the driver, without a broker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph.config.schema import ClusterConfig
from heliograph.copy import shuttle as shuttle_module
from heliograph.copy.events import TargetFailed
from heliograph.copy.lane import CarriedLane
from heliograph.copy.phases import Resuming, Running
from heliograph.copy.shuttle import Shuttle
from heliograph.errors import BrokerError, InvariantError, LeaderMoved
from heliograph.ledger.entries import LeaseKey, MemoEntry, Tombstone
from heliograph.ledger.fence import Fence, fence_entry, topic_fence_entry
from heliograph.ledger.writer import LedgerWriter
from heliograph.model import ClusterAlias, FlowId, TopicName, TopicPartition
from heliograph.wire.batch import Stamp
from tests.unit.copy.kit import FakeLedger, carried_lane, chunk, running_at, send

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
CLUSTERS = {
    alias: ClusterConfig(alias=alias, bootstrap_servers=("127.0.0.1:1",))
    for alias in (FLOW.source, FLOW.target)
}


class SlowLedger(FakeLedger):
    """Says when somebody waits for what was queued."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_for = 0

    def drop(self, lanes: list[TopicPartition]) -> None: ...

    async def write(self, entries: list[Any]) -> None:
        self.waited_for = self.write_soon(entries)


def test_a_drain_waits_for_a_head_that_was_queued_a_moment_before() -> None:
    """The tick queues the last head; the drain finds none due; the ledger is closed under it."""
    lane, ledger = carried_lane(), SlowLedger()
    lane.flow.ledger = ledger  # type: ignore[assignment]
    lane.enter(running_at(lane))

    async def tick_then_drain() -> None:
        shuttle = Shuttle({})
        shuttle._lanes[lane.spec.id] = lane
        shuttle._flows[lane.spec.id.flow] = lane.flow
        await shuttle._write_heads([lane], wait=False)
        await shuttle.drain()

    asyncio.run(tick_then_drain())

    assert ledger.tickets == 1
    assert ledger.waited_for == 1


def test_a_drain_waits_for_a_correction_of_the_map() -> None:
    """Written late it would meet what the lane's next slot has written."""
    lane, ledger = carried_lane(), SlowLedger()
    lane.flow.ledger = ledger  # type: ignore[assignment]
    running = running_at(lane)
    lane.enter(running)
    lane.enqueue(running, chunk(running), [], 0)
    batch = send(lane)
    lane.in_flight -= 1

    async def settle_then_drain() -> int:
        shuttle = Shuttle({})
        shuttle._lanes[lane.spec.id] = lane
        shuttle._flows[lane.spec.id.flow] = lane.flow
        lane.settle(running, batch, 3)
        corrections = ledger.tickets
        await shuttle._write_heads([lane], wait=False)
        await shuttle.drain()
        return corrections

    corrections = asyncio.run(settle_then_drain())

    assert corrections == 1
    assert ledger.waited_for == ledger.tickets == 2


def test_of_lanes_that_stand_still_nothing_is_told() -> None:
    async def scenario() -> None:
        shuttle = Shuttle({})
        lane, _ = queued_lane(shuttle, FakeLedger())

        began, still = shuttle.changes(), shuttle.changes()
        send(lane)
        moved = shuttle.changes()

        assert [at.lane for at in began] == [at.lane for at in moved] == [lane.spec.id]
        assert still == ()

    asyncio.run(scenario())


def test_a_ledger_that_cannot_be_written_is_told_while_and_after_it_is_so() -> None:
    """How long it has been so is part of what a lane shows, and no event of the lane."""

    async def scenario() -> None:
        shuttle, ledger = Shuttle({}), FakeLedger()
        queued_lane(shuttle, ledger)
        shuttle.progress()

        ledger.problem = LeaderMoved("no leader")
        troubled = [len(shuttle.changes()), len(shuttle.changes())]
        ledger.problem = None
        over = [len(shuttle.changes()), len(shuttle.changes())]

        assert (troubled, over) == ([1, 1], [1, 0])

    asyncio.run(scenario())


class Told(FakeLedger):
    """A ledger that says whether the flow is fenced, or does not answer."""

    def __init__(self, said: MemoEntry | BrokerError | None) -> None:
        super().__init__()
        self.said = said

    async def catch_up(self) -> None:
        if isinstance(self.said, BrokerError):
            raise self.said
        if self.said is not None:
            self.view.apply(self.said)


def queued_lane(shuttle: Shuttle, ledger: FakeLedger) -> tuple[CarriedLane, Running]:
    """A lane that runs, with one batch in flight and one that waits."""
    lane = carried_lane()
    lane.flow.ledger = ledger  # type: ignore[assignment]
    running = running_at(lane)
    lane.enter(running)
    for _ in range(2):
        lane.enqueue(running, chunk(running), [], 0)
    send(lane)
    shuttle._lanes[lane.spec.id], shuttle._flows[lane.spec.id.flow] = lane, lane.flow
    return lane, running


def test_a_discarded_lane_drops_what_waits_and_is_removed_once_nothing_is_in_flight() -> None:
    async def scenario() -> None:
        shuttle, ledger = Shuttle({}), SlowLedger()
        lane, running = queued_lane(shuttle, ledger)

        shuttle.discard([lane.spec.id])
        removing = asyncio.create_task(shuttle.remove([lane.spec.id]))
        await asyncio.sleep(0.01)
        was_waiting = not removing.done()
        lane.in_flight -= 1
        shuttle._machine.on(lane, TargetFailed(error=LeaderMoved("closed")))
        await removing

        assert was_waiting
        assert not running.outgoing
        assert ledger.tickets == 0, "a ledger that is cut off would hold the lane for ever"
        assert shuttle.progress() == ()

    asyncio.run(scenario())


def test_a_lane_that_was_given_back_stays_though_it_was_taken_away_twice() -> None:
    async def scenario() -> None:
        shuttle, ledger = Shuttle({}), SlowLedger()
        lane, _ = queued_lane(shuttle, ledger)
        shuttle.discard([lane.spec.id])
        removing = asyncio.create_task(shuttle.remove([lane.spec.id]))
        await asyncio.sleep(0.01)
        given_back = shuttle._lanes[lane.spec.id] = CarriedLane(lane.spec, lane.flow)
        lane.in_flight -= 1
        shuttle._machine.on(lane, TargetFailed(error=LeaderMoved("closed")))

        await removing

        assert shuttle._lanes == {lane.spec.id: given_back}

    asyncio.run(scenario())


def test_a_discarded_lane_whose_answers_do_not_come_has_its_connections_reset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shuttle_module, "DISCARD_S_MAX", 0.01)
    reset: list[str] = []

    async def scenario() -> None:
        shuttle = Shuttle({})
        lane, _ = queued_lane(shuttle, FakeLedger())
        shuttle._machine.targets.reset = reset.append  # type: ignore[method-assign, assignment]

        shuttle.discard([lane.spec.id])
        await asyncio.sleep(0.05)

    asyncio.run(scenario())

    assert reset == ["A"]


FENCE = Fence(at_ms=1, why="failed over")


@pytest.mark.parametrize(
    ("said", "is_stopped"),
    [
        (None, False),
        (fence_entry(FENCE), True),
        (topic_fence_entry(carried_lane().spec.id.source.topic, FENCE), True),
        (topic_fence_entry(TopicName("another"), FENCE), False),
        (LeaderMoved("no leader"), True),
    ],
    ids=["no fence", "fence", "fence of its topic", "fence of another topic", "no answer"],
)
def test_a_slot_without_a_driver_stops_the_lanes_of_a_flow_that_may_be_fenced(
    said: MemoEntry | BrokerError | None, is_stopped: bool
) -> None:
    async def scenario() -> None:
        shuttle = Shuttle({})
        lane, running = queued_lane(shuttle, Told(said))

        await shuttle.look_for_fences()

        assert (lane.running is None) is is_stopped
        assert (not running.outgoing) is is_stopped

    asyncio.run(scenario())


def test_all_lanes_of_a_flow_ask_their_logs_when_its_producer_was_renewed() -> None:
    async def scenario() -> None:
        shuttle = Shuttle(CLUSTERS)
        flow = shuttle._flow(FLOW)
        lane, running = queued_lane(shuttle, FakeLedger())
        flow.stamp = Stamp(1, 0)

        flow.use(Stamp(1, 0))
        goes_on = lane.running is running
        flow.use(Stamp(3, 0))

        assert goes_on
        assert isinstance(lane.phase, Resuming)
        assert not running.outgoing

    asyncio.run(scenario())


def test_a_ledger_whose_writer_met_a_bug_ends_the_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes with gaps would wait for ever, and say that they copy."""

    async def broken(self: LedgerWriter) -> int:
        raise ValueError("a short answer")

    monkeypatch.setattr(LedgerWriter, "_write_next", broken)

    async def scenario() -> None:
        shuttle = Shuttle(CLUSTERS)
        flow = shuttle._flow(FLOW)
        running = asyncio.create_task(shuttle.run())
        flow.ledger.write_soon([Tombstone(key=LeaseKey(author="0" * 32))])
        async with asyncio.timeout(5):
            await running

    with pytest.raises(InvariantError, match="the writer ended: a short answer"):
        asyncio.run(scenario())
