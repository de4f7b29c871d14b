"""One driver leads a flow and knows it; what goes wrong in a look never leaves it leading blindly.

The ledger is a list in memory; how entries are claimed and folded is the real thing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from heliograph.clock import now_ms
from heliograph.config.schema import ClusterConfig, EngineConfig, FlowConfig, MirrorConfig
from heliograph.errors import BrokerUnreachable, CorruptBatch, InvariantError
from heliograph.ledger.access import LedgerAccess, claim_lease
from heliograph.ledger.entries import Entry, FlowEntry, LeaseEntry, Tombstone
from heliograph.ledger.fence import (
    Fence,
    are_kept,
    fence_entry,
    topic_fence_entry,
    topic_unfence_entries,
)
from heliograph.ledger.leadership import Fenced, Lapsed, Leading, Standby
from heliograph.ledger.lease import Leases
from heliograph.ledger.standby_note import standbys_of
from heliograph.ledger.view import LedgerView
from heliograph.model import ClusterAlias, FlowId, TopicName
from heliograph.processes import new_signature
from tests.kit.leasing import Nothing

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
FENCE = Fence(at_ms=1, why="failed over")
LEASE_S = 0.6
HOUR_MS = 3_600_000
CONFIG = MirrorConfig(
    clusters={
        alias: ClusterConfig(alias=alias, bootstrap_servers=("127.0.0.1:1",))
        for alias in (FLOW.source, FLOW.target)
    },
    pairs=(FlowConfig(id=FLOW, enabled=True),),
    # Shorter than a file may ask for, so that the tests are.
    engine=EngineConfig().model_copy(update={"driver_lease_ms": int(LEASE_S * 1000)}),
)


class WallClock:
    """A driver's own, which may be wrong."""

    skew_ms = 0


CLOCK: ContextVar[WallClock] = ContextVar("CLOCK")


@pytest.fixture(autouse=True)
def no_cluster_and_a_clock_for_each_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: object) -> None: ...

    monkeypatch.setattr("heliograph.ledger.lease.ensure_ledger", nothing)
    monkeypatch.setattr("heliograph.ledger.lease.now_ms", lambda: now_ms() + CLOCK.get().skew_ms)


@dataclass
class Log:
    """The ledger's topic, shared by all who read and write it."""

    entries: list[Entry | Tombstone] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.entries.append(
            FlowEntry(
                flow=FLOW, producer_id=1, producer_epoch=0, source_cluster_id="x", created_ms=1
            )
        )

    def compact(self) -> None:
        """Keep the last entry of each driver's lease, as a broker does by and by."""
        kept: dict[object, Entry | Tombstone] = {}
        for number, entry in enumerate(self.entries):
            author = entry.key if isinstance(entry, Tombstone) else getattr(entry, "author", number)
            key = getattr(author, "author", author)
            kept.pop(key, None)
            kept[key] = entry
        self.entries[:] = [entry for entry in kept.values() if not isinstance(entry, Tombstone)]


class Ledgers:
    """One driver's access to the log; `trouble` is raised by every look while it is set."""

    def __init__(self, log: Log) -> None:
        self.author, self.trouble, self.looks = new_signature(), None, 0
        self.view, self._log, self._read = LedgerView(), log, 0
        self.silent = asyncio.Event()
        self.silent.set()

    trouble: Exception | None

    async def ask(self, flow: FlowId, question: Callable[[LedgerView], Any]) -> Any:
        self.looks += 1
        await self.catch_up()
        return question(self.view)

    async def ask_recent(
        self, flow: FlowId, question: Callable[[LedgerView], Any], age_s_max: float
    ) -> Any:
        return question(self.view)

    async def claim(
        self, flow: FlowId, entry: LeaseEntry, over: LeaseEntry | None = None
    ) -> LeaseEntry | None:
        return await claim_lease(self, entry, over)  # type: ignore[arg-type]

    async def renew(self, flow: FlowId, entry: LeaseEntry) -> LeaseEntry | None:
        return await LedgerAccess.renew(_Opened(self), flow, entry)  # type: ignore[arg-type]

    async def let_go(self, flow: FlowId, entry: LeaseEntry) -> None:
        await self.write_or_refuse([replace(entry, lease_ms=0)])

    async def note(self, flow: FlowId, entries: list[Entry | Tombstone]) -> None:
        await self.write_or_refuse(entries)

    async def catch_up(self) -> None:
        await self.silent.wait()
        if self.trouble is not None:
            raise self.trouble
        for entry in self._log.entries[self._read :]:
            if isinstance(entry, Tombstone):
                self.view.remove(entry.key)
            else:
                self.view.apply(entry)
        self._read = len(self._log.entries)

    async def write_or_refuse(self, entries: list[Entry | Tombstone]) -> None:
        self._log.entries += entries


@dataclass
class _Opened:
    """An access whose one store is the given one."""

    store: Ledgers

    def _store(self, flow: FlowId) -> Ledgers:
        return self.store


class Carrying(Nothing):
    """The activity of a driver whose slots have the topics until they let go."""

    has_let_go = False

    def has_left(self, flow: FlowId, topics: Collection[TopicName]) -> bool:
        return self.has_let_go


class Driver:
    """Leases of one driver, and the task that keeps them."""

    def __init__(
        self, log: Log, *, exclusive: bool = True, activity: Nothing | None = None
    ) -> None:
        self.ledgers, self.clock = Ledgers(log), WallClock()
        CLOCK.set(self.clock)  # the task below has a copy of the context
        self.leases = Leases(
            CONFIG,
            self.ledgers,  # type: ignore[arg-type]
            activity or Nothing(),
            exclusive=exclusive,
        )
        self.running = asyncio.create_task(self.leases.run())

    @property
    def leads(self) -> bool:
        return self.leases.leaderships.leads(FLOW)

    @property
    def value(self) -> object:
        return self.leases.leaderships[FLOW]

    async def leading(self) -> None:
        async with asyncio.timeout(5 * LEASE_S):
            await self.leases.leaderships.wait_leading(FLOW)

    async def not_leading(self) -> None:
        async with asyncio.timeout(5 * LEASE_S):
            while self.leads:
                await self.leases.leaderships.changed.wait()

    async def kill(self) -> None:
        """As kill -9: nothing is let go."""
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)


def played(scenario: Callable[[], Awaitable[None]]) -> None:
    async def play() -> None:
        before = asyncio.all_tasks()
        await scenario()
        for task in asyncio.all_tasks() - before:
            task.cancel()

    asyncio.run(play())


@pytest.mark.parametrize(
    "trouble",
    [
        CorruptBatch(7, "checksum does not match its bytes"),
        ValueError("kio cannot read that"),
        InvariantError("the writer ended"),
        ProcessLookupError("the holder ended while it was asked about"),
        BrokerUnreachable("no answer"),
    ],
    ids=lambda trouble: type(trouble).__name__,
)
def test_no_error_ends_the_looks_and_a_fence_is_seen_after_it(trouble: Exception) -> None:
    async def scenario() -> None:
        log = Log()
        driver = Driver(log)
        await driver.leading()

        driver.ledgers.trouble = trouble
        await asyncio.sleep(LEASE_S / 4)
        goes_on = driver.leads
        driver.ledgers.trouble = None
        log.entries.append(fence_entry(FENCE))
        await driver.not_leading()

        assert goes_on, "a hiccup is shorter than the lease"
        assert driver.value == Fenced(FENCE)
        assert not driver.running.done()

    played(scenario)


ORDERS = TopicName("orders")
ALONE = Fence(at_ms=2, why="failed over alone", id="f1")


async def come_true(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5 * LEASE_S):
        while not condition():
            await asyncio.sleep(0.01)


def test_a_topic_that_is_fenced_alone_leaves_its_flow_led_and_is_told_once_slots_let_go() -> None:
    async def scenario() -> None:
        log, slots = Log(), Carrying()
        driver = Driver(log, activity=slots)
        await driver.leading()

        log.entries.append(topic_fence_entry(ORDERS, ALONE))
        await come_true(lambda: driver.value == Leading({ORDERS: ALONE}))
        await asyncio.sleep(LEASE_S / 4)
        view, author = driver.ledgers.view, driver.ledgers.author
        too_early = are_kept(view, [ALONE], author)
        slots.has_let_go = True
        await come_true(lambda: are_kept(view, [ALONE], author))
        of_another = are_kept(view, [ALONE], "another")
        log.entries.extend(topic_unfence_entries([ORDERS]))
        await come_true(lambda: driver.value == Leading())
        log.entries.append(topic_fence_entry(ORDERS, replace(ALONE, id="f2")))
        slots.has_let_go = False
        await asyncio.sleep(LEASE_S / 4)

        assert not too_early
        assert not of_another
        assert driver.leads
        assert not are_kept(view, [replace(ALONE, id="f2")], author), "told of an earlier fence"

    played(scenario)


@pytest.mark.parametrize("exclusive", [True, False], ids=["lease", "no-lease"])
def test_a_driver_that_takes_over_knows_the_fenced_topics_before_it_leads(exclusive: bool) -> None:
    async def scenario() -> None:
        log = Log()
        log.entries.append(topic_fence_entry(ORDERS, ALONE))
        driver = Driver(log, exclusive=exclusive)

        await driver.leading()

        assert driver.leases.leaderships.fenced_topics(FLOW) == {ORDERS: ALONE}
        assert driver.leases.leaderships.why_fenced(FLOW) == ""

    played(scenario)


@pytest.mark.parametrize("exclusive", [True, False], ids=["lease", "no-lease"])
@pytest.mark.parametrize("is_silent", [True, False], ids=["silent", "failing"])
def test_a_driver_that_cannot_look_for_its_lease_leads_no_longer_and_again_when_it_can(
    exclusive: bool, is_silent: bool
) -> None:
    async def scenario() -> None:
        driver = Driver(Log(), exclusive=exclusive)
        await driver.leading()

        began_s = time.monotonic()
        if is_silent:
            driver.ledgers.silent.clear()
        else:
            driver.ledgers.trouble = BrokerUnreachable("cluster B: no broker answers")
        await driver.not_leading()
        stopped_s = time.monotonic() - began_s
        value = driver.value
        driver.ledgers.trouble = None
        driver.ledgers.silent.set()
        await driver.leading()

        assert isinstance(value, Lapsed)
        assert "could not be renewed" in value.why
        assert "cluster B" in value.why
        assert LEASE_S * 0.5 < stopped_s < LEASE_S

    played(scenario)


def test_a_driver_has_stopped_before_another_may_take_over() -> None:
    async def scenario() -> None:
        log = Log()
        cut_off, other = Driver(log), Driver(log)
        await asyncio.sleep(LEASE_S / 4)
        leader, standby = (cut_off, other) if cut_off.leads else (other, cut_off)

        leader.ledgers.silent.clear()
        await leader.not_leading()
        was_led = standby.leads
        await standby.leading()

        assert not was_led
        assert not leader.leads

    played(scenario)


def test_a_standby_is_named_until_it_leads_or_ends() -> None:
    async def scenario() -> None:
        log = Log()
        first = Driver(log)
        await first.leading()
        second, third = Driver(log), Driver(log)
        await asyncio.sleep(LEASE_S / 2)
        both = await named(first)
        await third.kill()
        await third.leases.release()
        one = await named(first)
        await first.kill()
        await first.leases.release()
        await second.leading()
        await asyncio.sleep(LEASE_S / 4)

        assert both == {second.ledgers.author, third.ledgers.author}
        assert one == {second.ledgers.author}
        assert await named(second) == set()

    async def named(driver: Driver) -> set[str]:
        found = await driver.ledgers.ask(FLOW, lambda view: standbys_of(view, now_ms()))
        return {each.author for each in found}

    played(scenario)


def test_a_killed_drivers_flow_is_taken_over_after_one_lease_by_one_driver() -> None:
    async def scenario() -> None:
        log = Log()
        first = Driver(log)
        await first.leading()
        others = [Driver(log), Driver(log)]
        await asyncio.sleep(LEASE_S / 4)
        await first.kill()

        began_s = time.monotonic()
        while not any(other.leads for other in others):
            await asyncio.sleep(0.01)
        took_s = time.monotonic() - began_s
        await asyncio.sleep(LEASE_S / 2)

        assert took_s < LEASE_S * 1.25
        assert sum(other.leads for other in others) == 1

    played(scenario)


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS], ids=["forward", "back"])
@pytest.mark.parametrize("at", ["leader", "standby"])
def test_a_clock_that_jumps_changes_no_leadership(at: str, jump_ms: int) -> None:
    async def scenario() -> None:
        log = Log()
        first = Driver(log)
        await first.leading()
        second = Driver(log)
        await asyncio.sleep(LEASE_S / 4)

        (first if at == "leader" else second).clock.skew_ms = jump_ms
        for _ in range(15):
            await asyncio.sleep(LEASE_S / 10)
            assert (first.leads, second.leads) == (True, False)

        assert isinstance(second.value, Standby)

    played(scenario)


@pytest.mark.parametrize("skew_ms", [HOUR_MS, -HOUR_MS], ids=["ahead", "behind"])
def test_a_driver_whose_clock_is_wrong_is_followed_in_time_also_after_compaction(
    skew_ms: int,
) -> None:
    async def scenario() -> None:
        log = Log()
        wrong = Driver(log)
        wrong.clock.skew_ms = skew_ms
        await wrong.leading()
        await asyncio.sleep(LEASE_S / 2)
        follower = Driver(log)
        await asyncio.sleep(LEASE_S / 4)
        await wrong.kill()

        began_s = time.monotonic()
        await follower.leading()
        took_s = time.monotonic() - began_s
        await asyncio.sleep(LEASE_S / 2)
        log.compact()
        reader = Ledgers(log)
        await reader.catch_up()

        assert took_s < LEASE_S * 1.25
        assert reader.view.holder is not None
        assert reader.view.holder.author == follower.ledgers.author

    played(scenario)


def test_a_holder_that_renews_at_the_moment_of_a_take_over_keeps_the_lease() -> None:
    """By a clock an hour ahead the take-over would be later than any renewal."""

    async def scenario() -> None:
        log = Log()
        holder, taker = Ledgers(log), Ledgers(log)
        held = lease(holder, at_ms=10_000)
        await holder.claim(FLOW, held)
        await taker.catch_up()
        seen = taker.view.holder
        write = taker.write_or_refuse

        async def renewed_before(entries: list[Entry | Tombstone]) -> None:
            taker.write_or_refuse = write  # type: ignore[method-assign]
            await holder.claim(FLOW, replace(held, at_ms=10_400))
            await write(entries)

        taker.write_or_refuse = renewed_before  # type: ignore[method-assign]
        left = await taker.claim(FLOW, lease(taker, at_ms=10_000 + HOUR_MS), over=seen)
        await holder.catch_up()

        assert left is not None
        assert left.author == holder.author
        assert holder.view.holder == left

    played(scenario)


def lease(ledgers: Ledgers, *, at_ms: int) -> LeaseEntry:
    return LeaseEntry(
        author=ledgers.author, host="box", pid=7, at_ms=at_ms, lease_ms=1_000, slot_count=1
    )


def test_a_flow_that_begins_is_claimed_and_one_that_ends_is_let_go() -> None:
    async def scenario() -> None:
        log = Log()
        driver = Driver(log)
        await driver.leading()
        before = len(log.entries)

        await driver.leases.end(FLOW)
        last = log.entries[-1]
        let_go = (len(log.entries) > before, isinstance(last, LeaseEntry) and last.lease_ms)
        await asyncio.sleep(LEASE_S / 2)
        quiet = log.entries[-1] is last
        driver.leases.use(CONFIG)
        standby = driver.value
        await driver.leading()

        assert let_go == (True, 0)
        assert quiet, "nobody renews it any more"
        assert standby == Standby()

    played(scenario)
