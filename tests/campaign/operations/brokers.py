"""What happens to brokers of either side; of three, one at a time, so that records stay safe."""

from __future__ import annotations

import os
import random
import signal
from typing import Final

from confluent_kafka import ElectionType, TopicPartition

from tests.campaign.operations.kind import Detail, Kind, NotNow
from tests.campaign.world import World
from tests.kit.reassigning import reassign

_DOWN_S: Final = (0.0, 4.0)
_STOPPED_S: Final = (0.5, 8.0)
_ANSWER_S: Final = 30.0


def kill(world: World, chance: random.Random) -> Detail:
    return _down(world, chance, signal.SIGKILL)


def stop(world: World, chance: random.Random) -> Detail:
    """SIGTERM: its partitions get other leaders first."""
    return _down(world, chance, signal.SIGTERM)


def freeze(world: World, chance: random.Random) -> Detail:
    """SIGSTOP: connections stay, nothing is answered, and it comes back as if nothing was."""
    alias, index = _whole(world, chance)
    broker, seconds = world.clusters[alias].broker(index), chance.uniform(*_STOPPED_S)
    pid = broker.pid
    os.kill(pid, signal.SIGSTOP)
    world.hurt.add((alias, index))

    def wake() -> None:
        world.hurt.discard((alias, index))
        if broker.running and broker.pid == pid:
            os.kill(pid, signal.SIGCONT)

    world.later(seconds, f"broker {alias}{index} is stopped", wake)
    return {"cluster": alias, "broker": index, "seconds": round(seconds, 1)}


def move_leader(world: World, chance: random.Random) -> Detail:
    """Any partition of a cluster, the ledger's too, gets another leader."""
    alias, topic, number = _partition(world, chance)
    cluster = world.clusters[alias]
    replicas = list(range(len(cluster.brokers)))
    chance.shuffle(replicas)
    codes = reassign(cluster, {(topic, number): replicas})
    partition = TopicPartition(topic, number)
    asked = world.admins[alias].elect_leaders(ElectionType.PREFERRED, [partition])
    problem = asked.result(_ANSWER_S)[partition]
    return {
        "cluster": alias,
        "partition": f"{topic}-{number}",
        "replicas": replicas,
        "code": codes,
        "problem": str(problem or ""),
    }


def move_replicas(world: World, chance: random.Random) -> Detail:
    """One replica is given up for a while, and copied again from the others afterwards."""
    alias, topic, number = _partition(world, chance)
    cluster = world.clusters[alias]
    replicas = list(range(len(cluster.brokers)))
    chance.shuffle(replicas)
    codes = reassign(cluster, {(topic, number): replicas[:2]})
    seconds = chance.uniform(*_STOPPED_S)

    def back() -> None:
        reassign(cluster, {(topic, number): replicas})

    world.later(seconds, f"{topic}-{number} on {alias} has two replicas", back)
    return {
        "cluster": alias,
        "partition": f"{topic}-{number}",
        "replicas": replicas[:2],
        "code": codes,
        "seconds": round(seconds, 1),
    }


def _partition(world: World, chance: random.Random) -> tuple[str, str, int]:
    alias = chance.choice("AB")
    known = world.tails[alias].known
    topics = sorted(known)
    if not topics:
        raise NotNow(f"no topic of {alias} is known yet")
    topic = chance.choice(topics)
    return alias, topic, chance.randrange(known[topic])


def _down(world: World, chance: random.Random, number: signal.Signals) -> Detail:
    alias, index = _whole(world, chance)
    seconds = chance.uniform(*_DOWN_S)
    cluster = world.clusters[alias]
    cluster.kill_broker(index, number)
    world.hurt.add((alias, index))

    def back() -> None:
        if not cluster.broker(index).running:
            cluster.start_broker(index)
        world.hurt.discard((alias, index))

    world.later(seconds, f"broker {alias}{index} is down", back)
    return {"cluster": alias, "broker": index, "seconds": round(seconds, 1)}


def _whole(world: World, chance: random.Random) -> tuple[str, int]:
    """A broker of a cluster all of whose brokers are well."""
    every = [
        (alias, index)
        for alias, cluster in world.clusters.items()
        for index in range(len(cluster.brokers))
        if not any(hurt == alias for hurt, _ in world.hurt)
    ]
    if not every:
        raise NotNow("a broker of each cluster is down")
    return chance.choice(every)


KINDS: Final = (
    Kind(name="kill-broker", family="brokers", perform=kill),
    Kind(name="stop-broker", family="brokers", perform=stop),
    Kind(name="freeze-broker", family="brokers", perform=freeze),
    Kind(name="move-leader", family="brokers", perform=move_leader, brokers_min=3),
    Kind(name="move-replicas", family="brokers", perform=move_replicas, brokers_min=3),
)
