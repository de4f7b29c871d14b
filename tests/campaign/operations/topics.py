"""What happens to topics: more of them, more partitions, other settings, less of what they had."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from typing import Final

from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions

from tests.campaign.layout import FOLLOWED, Channel, channels_of
from tests.campaign.operations.kind import Detail, Kind, NotNow, one_channel_topic
from tests.campaign.plan import PIPELINE
from tests.campaign.world import World
from tests.kit.topics import delete_topic, set_topic_config

_PARTITIONS_MAX: Final = 6
_TOPICS_MAX: Final = 6
_TIMEOUT_S: Final = 30.0
_SMALL_S: Final = (2.0, 10.0)


def create(world: World, chance: random.Random) -> Detail:
    """The mirror finds it by itself."""
    roomy = [
        each
        for each in world.workloads
        if each != PIPELINE and len(world.topics[each]) < _TOPICS_MAX
    ]
    if not roomy:
        raise NotNow("there are topics enough")
    name = world.add_topic(chance.choice(roomy), chance.randint(1, 3))
    return {"topic": name}


def grow(world: World, chance: random.Random) -> Detail:
    """More partitions, while it is written."""
    workload, topic = one_channel_topic(world, chance)
    wanted = world.topics[workload][topic] + 1
    if wanted > _PARTITIONS_MAX:
        raise NotNow(f"{topic} has partitions enough")
    for alias in ("A", "B") if workload == "both" else ("A",):
        request = [NewPartitions(topic, wanted)]
        world.admins[alias].create_partitions(request)[topic].result(_TIMEOUT_S)
    world.topics[workload][topic] = wanted
    return {"topic": topic, "partitions": wanted}


def recreate(world: World, chance: random.Random) -> Detail:
    """Deleted and created again under its name; what was not mirrored by then goes with it."""
    workload, topic = one_channel_topic(world, chance, but=("both", PIPELINE))
    partitions = world.topics[workload][topic]
    with ExitStack() as stack:
        for writer in world.writers:
            stack.enter_context(writer.resting())
        # No writer meets a topic that is not there, or an older one's sequences.
        del world.topics[workload][topic]
        delete_topic(world.clusters["A"], topic)
        world.truth.recreated("A", topic)
        world.settings.pop(("A", topic), None)
        pause_s = chance.choice((0.0, 0.0, 1.0, 5.0))
        time.sleep(pause_s)
        world.create(workload, topic, partitions)
        world.topics[workload][topic] = partitions
    return {"topic": topic, "away_s": pause_s}


def delete_records(world: World, chance: random.Random) -> Detail:
    """What retention does; whether it was mirrored by then is the mirror's luck."""
    workload, topic = one_channel_topic(world, chance, but=("compacted", "both", PIPELINE))
    places = [(topic, number) for number in range(world.topics[workload][topic])]
    ends = world.ends["A"].of(places, committed=False)
    share = chance.choice((0.3, 0.8, 1.0))
    asked = [TopicPartition(*place, int(end * share)) for place, end in ends.items() if end]
    if not asked:
        raise NotNow(f"{topic} is empty")
    begins: dict[int, int] = {}
    for partition, answer in world.admins["A"].delete_records(asked).items():
        # Noted first: a request whose answer is lost may have been done.
        world.truth.deleted_before("A", topic, partition.partition, partition.offset)
        begins[partition.partition] = answer.result(_TIMEOUT_S).low_watermark
    return {"topic": topic, "begins": begins}


def overrun(world: World, chance: random.Random) -> Detail:
    """Everything is deleted while nothing is mirrored: what waited is lost, and must be counted."""
    channel = _bold(world, chance)
    cluster = world.proxies["A"]
    for proxy in cluster:
        proxy.hold()
    try:
        time.sleep(chance.uniform(1.0, 3.0))
        places = [(channel.topic, number) for number in range(world.partitions(channel))]
        ends = world.ends["A"].of(places, committed=False)
        asked = [TopicPartition(*place, end) for place, end in ends.items() if end]
        for partition in asked:
            world.truth.deleted_before("A", channel.topic, partition.partition, partition.offset)
        if asked:
            for answer in world.admins["A"].delete_records(asked).values():
                answer.result(_TIMEOUT_S)
    finally:
        for proxy in cluster:
            proxy.release()
    return {"topic": channel.topic, "begins": {each.partition: each.offset for each in asked}}


def change_setting(world: World, chance: random.Random) -> Detail:
    """A setting that the mirror follows."""
    _, topic = one_channel_topic(world, chance, but=("both", PIPELINE))
    value = str(chance.randint(20_000, 90_000))
    world.settings["A", topic] = value
    set_topic_config(world.clusters["A"], topic, {FOLLOWED: value})
    return {"topic": topic, FOLLOWED: value}


def refuse_large(world: World, chance: random.Random) -> Detail:
    """The target takes small batches only for a while; larger ones wait, and say so."""
    workload, topic = one_channel_topic(world, chance, but=("both", PIPELINE))
    (channel,) = channels_of(workload, topic)
    known = world.tails[channel.target].known
    if channel.target_topic not in known:
        raise NotNow(f"{channel.target_topic} is not there yet")
    target = world.clusters[channel.target]
    bytes_max, seconds = chance.choice((300, 5_000)), chance.uniform(*_SMALL_S)
    set_topic_config(target, channel.target_topic, {"max.message.bytes": str(bytes_max)})

    def over() -> None:
        set_topic_config(target, channel.target_topic, {"max.message.bytes": None})

    world.later(seconds, f"{channel.target_topic} is for small batches", over)
    return {"topic": channel.target_topic, "bytes": bytes_max, "seconds": round(seconds, 1)}


def _bold(world: World, chance: random.Random) -> Channel:
    workload, topic = one_channel_topic(world, chance, but=("compacted", "both", PIPELINE))
    (channel,) = channels_of(workload, topic)
    return channel


KINDS: Final = (
    Kind(name="create-topic", family="topics", perform=create),
    Kind(name="add-partitions", family="topics", perform=grow),
    Kind(name="recreate-topic", family="topics", perform=recreate, weight=0.6),
    Kind(name="delete-records", family="topics", perform=delete_records),
    Kind(name="overrun", family="topics", perform=overrun, weight=0.6),
    Kind(name="change-setting", family="topics", perform=change_setting),
    Kind(name="refuse-large", family="topics", perform=refuse_large, weight=0.6),
)
