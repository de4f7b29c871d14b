"""What happens to brokers of either side; of three, one at a time, so that records stay safe."""

from __future__ import annotations

import os
import random
import signal
from typing import Final

from tests.campaign.operations.kind import Detail, Kind, NotNow
from tests.campaign.world import World

_DOWN_S: Final = (0.0, 4.0)
_STOPPED_S: Final = (0.5, 8.0)


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


def _down(world: World, chance: random.Random, number: signal.Signals) -> Detail:
    alias, index = _whole(world, chance)
    seconds = chance.uniform(*_DOWN_S)
    cluster = world.clusters[alias]
    cluster.kill_broker(index, number)
    world.hurt.add((alias, index))

    def back() -> None:
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
)
