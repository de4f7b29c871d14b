"""What clients do besides the steady writing: bursts, odd sizes and times, groups that move."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import KafkaException, Producer

from heliograph.config.load import load_config
from heliograph.groups.placement import GroupMove, Strategy, plan_group_offsets
from heliograph.groups.snapshot import read_snapshot
from tests.campaign.layout import Channel
from tests.campaign.operations.kind import Detail, Kind, NotNow, one_channel_topic
from tests.campaign.plan import PIPELINE
from tests.campaign.truth import Fate, Sent
from tests.campaign.world import GroupLook, World
from tests.campaign.writers import producer_of, send, write_once
from tests.kit.groups import commit

_HANGS_S: Final = (1.0, 12.0)
_HOUR_MS: Final = 3_600_000


def big_batches(world: World, chance: random.Random) -> Detail:
    """A megabyte or two in a hurry."""
    settings = {
        "linger.ms": 50,
        "batch.size": 900_000,
        "compression.type": chance.choice(("none", "zstd", "lz4")),
    }
    return _burst(world, chance, chance.randint(400, 1_500), 1_000, settings)


def tiny_batches(world: World, chance: random.Random) -> Detail:
    settings = {"batch.num.messages": 1, "linger.ms": 0}
    return _burst(world, chance, chance.randint(50, 300), 5, settings)


def large_records(world: World, chance: random.Random) -> Detail:
    settings = {"message.max.bytes": 1_000_000}
    return _burst(world, chance, chance.randint(1, 4), 800_000, settings)


def odd_times(world: World, chance: random.Random) -> Detail:
    """Clients whose clocks are wrong: by an hour, or by years."""
    by_ms = chance.choice((_HOUR_MS // 2, -_HOUR_MS, -24 * _HOUR_MS, -10 * 365 * 24 * _HOUR_MS))
    at_ms = time.time_ns() // 1_000_000 + by_ms
    return {**_burst(world, chance, 20, 50, {}, at_ms), "by_ms": by_ms}


def hang(world: World, chance: random.Random) -> Detail:
    """A transaction stays open, and readers of committed records wait behind it."""
    workload, topic = one_channel_topic(world, chance, but=("compacted", PIPELINE))
    some = _records(world, chance, workload, topic, chance.randint(1, 10), 50)
    commits, seconds = chance.random() < 0.5, chance.uniform(*_HANGS_S)
    name = f"hanging-{world.next_number()}"
    settings = {"transactional.id": name, "transaction.timeout.ms": 60_000}
    producer = producer_of(world.clusters[some[0].cluster], settings)
    producer.init_transactions(30)
    producer.begin_transaction()
    for sent in some:
        send(producer, sent, is_final=False)
    producer.flush(30)

    def end() -> None:
        try:
            _end(producer, some, commits=commits)
        except KafkaException:
            # Whatever became of it, it is over: a client of the same name ends what is open.
            heir = producer_of(world.clusters[some[0].cluster], settings)
            heir.init_transactions(60)

    world.later(seconds, f"{name} is open", end)
    return {"topic": topic, "records": len(some), "commits": commits, "seconds": round(seconds, 1)}


def _end(producer: Producer, some: Sequence[Sent], *, commits: bool) -> None:
    began_s = time.monotonic()
    for sent in some:
        # What is in doubt from here on is found in the log, should the answer be lost.
        sent.fate, sent.visible_s = Fate.UNKNOWN, began_s
    if commits:
        producer.commit_transaction(60)
    else:
        producer.abort_transaction(60)
    for sent in some:
        sent.fate = Fate.COMMITTED if commits else Fate.ABORTED
        sent.acked_s = time.monotonic()


def move_group(world: World, chance: random.Random) -> Detail:
    """A group commits anywhere, and is looked for on the target as in a failover of this moment."""
    channels = [each for each in world.channels if not each.both_ways]
    if not channels:
        raise NotNow("only topics of both sides")
    channel = chance.choice(channels)
    group = f"moves-{world.next_number()}"
    places = [(channel.topic, number) for number in range(world.partitions(channel))]
    ends = world.ends[channel.source].of(places)
    at = {number: chance.randint(0, end) for (_, number), end in sorted(ends.items())}
    incarnation = world.truth.incarnation(channel.source, channel.topic)
    commit(world.clusters[channel.source], group, channel.topic, at)
    known = asyncio.run(
        read_snapshot(load_config(world.file), channel.flow, lambda name: name == group)
    )
    plan = plan_group_offsets(known, Strategy.MAP)
    for each in plan.moves:
        world.moves.append(_look(world, channel, incarnation, each, at))
    return {
        "channel": str(channel),
        "group": group,
        "at": at,
        "to": {each.source.partition: each.target_offset for each in plan.moves},
        "unplaced": [str(each.why) for each in plan.unplaced],
    }


def _look(
    world: World, channel: Channel, incarnation: int, move: GroupMove, at: dict[int, int]
) -> GroupLook:
    return GroupLook(
        operation=world.truth.operation,
        channel=channel,
        partition=move.source.partition,
        incarnation=incarnation,
        group=move.group,
        source_offset=at[move.source.partition],
        target_offset=move.target_offset,
        is_clamped_after=move.clamped in ("after", "coarse"),
    )


def _burst(
    world: World,
    chance: random.Random,
    count: int,
    value_bytes: int,
    settings: dict[str, Any],
    at_ms: int | None = None,
) -> dict[str, object]:
    workload, topic = one_channel_topic(world, chance, but=())
    some = _records(world, chance, workload, topic, count, value_bytes, at_ms)
    acked = write_once(world.clusters[some[0].cluster], some, settings)
    return {"topic": topic, "records": count, "acknowledged": acked}


def _records(
    world: World,
    chance: random.Random,
    workload: str,
    topic: str,
    count: int,
    value_bytes: int,
    at_ms: int | None = None,
) -> list[Sent]:
    alias = chance.choice("AB") if workload == "both" else "A"
    partitions = world.topics[workload][topic]
    return [
        world.truth.new(
            alias,
            topic,
            number % partitions,
            # Of the workload's own keys none: compaction would take what others count on.
            key=b"burst %d" % (number % partitions),
            value=chance.randbytes(1) * value_bytes,
            timestamp_ms=at_ms,
        )
        for number in range(count)
    ]


KINDS: Final = (
    Kind(name="big-batches", family="clients", perform=big_batches),
    Kind(name="tiny-batches", family="clients", perform=tiny_batches),
    Kind(name="large-records", family="clients", perform=large_records),
    Kind(name="odd-times", family="time", perform=odd_times),
    Kind(name="hanging-transaction", family="clients", perform=hang),
    Kind(name="move-group", family="clients", perform=move_group, weight=2.0),
)
