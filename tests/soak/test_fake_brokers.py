"""What the simulated brokers claim of followers, leaders and forgetting, asked of real ones.

As `tests/cluster/test_fake_cluster.py`, for what takes two brokers, or one that forgets soon.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Protocol

from heliograph.broker.cluster import Cluster
from heliograph.clock import now_ms
from heliograph.model import ClusterAlias, TopicName
from heliograph.wire.batch import Stamp
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster
from tests.kit.broker_script import PER_BATCH, Said, Script, played, played_in_sim
from tests.kit.clusters import ClusterFactory
from tests.kit.fake_brokers import FakeBrokers
from tests.kit.fake_log import FakeLog
from tests.kit.leaders import elect_preferred, leader_of, prefer
from tests.kit.topics import create_topic

NAME = "script"


class Followers(Protocol):
    """Of the script's partition."""

    def hold(self) -> None:
        """They take up nothing more."""

    def let_go(self) -> None: ...


class RealFollower:
    def __init__(self, cluster: LocalCluster) -> None:
        self._pid = cluster.broker(1 - leader_of(cluster, NAME)).pid

    def hold(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)

    def let_go(self) -> None:
        os.kill(self._pid, signal.SIGCONT)


class SimFollower:
    def __init__(self, log: FakeLog) -> None:
        self._log = log

    def hold(self) -> None:
        self._log.lags = True

    def let_go(self) -> None:
        self._log.lags, self._log.unreplicated = False, 0


async def replicating(script: Script, followers: Followers) -> None:
    """A leader shows nothing that its followers do not have, but for who wrote it."""
    ours = Stamp(*await script.cluster.new_producer_id())
    await script.append("both have it", ours, 0)
    followers.hold()
    try:
        appending = script.append("acknowledged when both have it", ours, PER_BATCH)
        waits = asyncio.create_task(appending)

        async def is_known() -> bool:
            return await script.last_sequence(ours) == 2 * PER_BATCH - 1

        await script.until(is_known)
        await script.look("its sequence is told, its end is not", ours)
        await script.fetch("nothing of it at the end that shows", PER_BATCH)
        await script.fetch("nothing of it behind that end", PER_BATCH + 1)
        await script.fetch("what lies before it", 0)
        await script.fetch("behind all that the leader has", 2 * PER_BATCH + 1)
        script.said.append(("not acknowledged", waits.done()))
    finally:
        followers.let_go()
    await waits
    await script.look("its end is told", ours)
    await script.fetch("and it is shown", PER_BATCH)


def test_what_followers_do_not_have_is_shown_by_simulated_leaders_as_by_real_ones(
    clusters: ClusterFactory,
) -> None:
    cluster = clusters(ClusterSpec(alias="B", brokers=2, heap_mb=256))["B"]
    create_topic(cluster, NAME, replicas=2, config={"retention.ms": "-1"})
    follower = RealFollower(cluster)
    brokers = FakeBrokers({1: "b1"})
    in_memory = SimFollower(brokers.create(NAME))

    said = _played(cluster, lambda script: replicating(script, follower))

    assert played_in_sim(NAME, lambda each: replicating(each, in_memory), brokers) == said


async def moving(script: Script, move: Callable[[], Awaitable[None]]) -> None:
    """The one that led refuses, and where epochs end is told by the one that leads."""
    ours = Stamp(*await script.cluster.new_producer_id())
    before = script.cluster.leader(script.at)
    await script.append("at the first leader", ours, 0)
    await move()
    # The metadata names the new leader a moment before that one knows of it.
    after = before

    async def is_led() -> bool:
        nonlocal after
        await script.cluster.refresh([script.at.topic])
        after = script.cluster.leader(script.at)
        ends = (await script.cluster.epoch_ends({script.at: 0}))[script.at]
        return after is not None and after != before and not isinstance(ends, Exception)

    await script.until(is_led)
    assert before is not None
    assert after is not None
    old, new = before.epoch, after.epoch
    script.said.append(("another broker", before.broker != after.broker))
    await script.append("at the one that led before", ours, PER_BATCH, to=before.broker)
    await script.append("at the one that leads", ours, PER_BATCH)
    await script.append("again", ours, 0)
    await script.fetch("as of the epoch before", 0, leader_epoch=old)
    await script.fetch("as of the epoch that is", 0, leader_epoch=new)
    await script.fetch("as of one that is to come", 0, leader_epoch=new + 1)
    await script.fetch("from the one that led, as of then", 0, leader_epoch=old, to=before.broker)
    await script.fetch("behind what was read of the epoch before", PER_BATCH, last_epoch=old)
    await script.fetch("behind more than that epoch had", 2 * PER_BATCH, last_epoch=old)
    for name, epoch in (("the first", old), ("the second", new), ("none", new + 7)):
        end = (await script.cluster.epoch_ends({script.at: epoch}))[script.at]
        assert not isinstance(end, Exception)
        known = {old: "the first", new: "the second"}.get(end.epoch, "none")
        script.said.append((f"where {name} ends", (known, end.end_offset)))
    await script.look("nothing is lost", ours)


def test_a_leader_that_moves_is_told_by_simulated_brokers_as_by_real_ones(
    clusters: ClusterFactory,
) -> None:
    cluster = clusters(ClusterSpec(alias="B", brokers=2, heap_mb=256))["B"]
    create_topic(cluster, NAME, replicas=2, config={"retention.ms": "-1"})
    brokers = FakeBrokers({0: "b0", 1: "b1"})
    log = brokers.create(NAME)

    async def move() -> None:
        leader = leader_of(cluster, NAME)
        await asyncio.to_thread(prefer, cluster, NAME, (1 - leader, leader))
        await asyncio.to_thread(elect_preferred, cluster, NAME)

    async def move_in_memory() -> None:
        topic = brokers.topics[TopicName(NAME)]
        topic.deposed[0, 1] = log.epoch, log.high_watermark, True
        log.elect()
        topic.leaders[0] = 0

    said = _played(cluster, lambda script: moving(script, move))

    assert played_in_sim(NAME, lambda script: moving(script, move_in_memory), brokers) == said


async def forgetting(script: Script, expire: Callable[[Script, Stamp], Awaitable[None]]) -> None:
    """A producer that was idle for long is one that the broker never knew."""
    ours = Stamp(*await script.cluster.new_producer_id())
    script.at_ms = now_ms()
    await script.append("the first", ours, 0)
    await script.append("the second", ours, PER_BATCH)
    await expire(script, ours)
    await script.look("it is not known any more", ours)
    script.at_ms = now_ms()
    await script.append("the second again counts as new", ours, PER_BATCH)
    await script.append("and goes on from there", ours, 2 * PER_BATCH)
    await script.append("the first is out of place", ours, 0)
    await script.look("it is known again", ours)


def test_a_producer_is_forgotten_by_simulated_brokers_as_by_real_ones(
    clusters: ClusterFactory,
) -> None:
    config = {
        "producer.id.expiration.ms": "5000",
        "producer.id.expiration.check.interval.ms": "200",
    }
    cluster = clusters(ClusterSpec(alias="B", heap_mb=256, broker_config=config))["B"]
    create_topic(cluster, NAME, config={"retention.ms": "-1"})
    brokers = FakeBrokers({1: "b1"})
    log = brokers.create(NAME)

    async def wait(script: Script, ours: Stamp) -> None:
        async def is_forgotten() -> bool:
            return await script.last_sequence(ours) < 0

        await script.until(is_forgotten)

    async def forget(script: Script, ours: Stamp) -> None:
        log.expire_producers()

    said = _played(cluster, lambda script: forgetting(script, wait))

    assert played_in_sim(NAME, lambda script: forgetting(script, forget), brokers) == said


def _played(cluster: LocalCluster, play: Callable[[Script], Awaitable[None]]) -> Said:
    real = Cluster(ClusterAlias("B"), cluster.bootstrap.split(","), {})
    return asyncio.run(played(Script(real, NAME), play))
