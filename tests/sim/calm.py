"""Everything is made well again, and what must hold then is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.sim.checks import check_rest, is_at_rest
from tests.sim.truth import Violation

if TYPE_CHECKING:
    from tests.sim.episode import Episode

CALM_S_MAX: Final = 120.0
"""How long all may take to find its place again. A lane that a broker refused tries again after 30
seconds, and a request that nobody answers is given up after 45."""


def calm(episode: Episode) -> None:
    """Raises `Violation` where a lane does not come to rest, or rests where it must not."""
    _heal(episode)
    until_s = episode.loop.now_s + CALM_S_MAX
    while episode.loop.now_s < until_s:
        move_all(episode)
        _drive(episode)
        move_all(episode)
        if _rests(episode):
            # Heads and corrections of the map are written, and nothing more comes of it.
            rested_s = episode.loop.now_s
            while episode.loop.now_s < rested_s + 6.0:
                _tick(episode)
                move_all(episode)
            if _rests(episode):
                break
        _tick(episode)
    for partition in episode.partitions:
        lane = episode.slots[0].lane(partition)
        check_rest(episode.world, partition, lane)


def _heal(episode: Episode) -> None:
    net, world = episode.net, episode.world
    net.down.clear()
    net.hung_until_s.clear()
    world.heal()
    world.end_transactions()
    for brokers in world.clusters.values():
        for topic in brokers.topics.values():
            topic.leaderless.clear()
    for slot in tuple(episode.slots[1:]):
        episode.kill(slot, drops=not episode.mix.comes_late)
    if not episode.slots:
        episode.start_slot()
    (slot,) = episode.slots
    if slot.is_frozen:
        slot.process.thaw()
        episode.settle()
    for partition in episode.partitions:
        if slot.carries(partition):
            slot.resume(partition)
    net.poke()


def _drive(episode: Episode) -> None:
    (slot,) = episode.slots
    if not episode.driver.is_open:
        return
    episode.driver.look()
    for partition in episode.partitions:
        if not slot.carries(partition):
            slot.add(episode.driver.spec(partition))
        else:
            episode.driver.decide(slot, partition)
    episode.settle()


def move_all(episode: Episode) -> None:
    """All that is on its way arrives, in order, and is replicated."""
    net, turns = episode.net, 0
    while True:
        for log in episode.logs:
            if log.unreplicated or log.is_settling:
                episode.world.replicate(log)
        net.poke()
        moves = net.moves()
        if not moves:
            return
        for wire, is_answer in moves:
            if wire.outbound if is_answer else wire.can_arrive:
                net.move(wire, is_answer)
                episode.settle()
                episode.steps += 1
        turns += 1
        if turns > 20_000:
            raise Violation("requests without an end, and the time does not move")


def _tick(episode: Episode) -> None:
    episode.advance(max(episode.next_event_s(), episode.loop.now_s + 0.001))
    episode.net.poke()
    episode.steps += 1


def _rests(episode: Episode) -> bool:
    (slot,) = episode.slots
    return all(
        slot.carries(partition) and is_at_rest(slot.lane(partition))
        for partition in episode.partitions
    ) and not any(_may_decide(episode, partition) for partition in episode.partitions)


def _may_decide(episode: Episode, partition: int) -> bool:
    lane = episode.slots[0].lane(partition)
    return episode.driver.may_decide(lane)
