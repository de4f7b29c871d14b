"""What may happen at a step, how often, and what it does."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from tests.sim.calm import calm, move_all
from tests.sim.world import BROKERS, FLOW, LEDGER

if TYPE_CHECKING:
    from tests.sim.episode import Action, Episode
    from tests.sim.net import Side

UNPROMISED: Final = (
    ("compact source", {"freeze", "second carrier", "late"}),
    ("foreign", {"lose target"}),
    ("recreate source", {"freeze", "second carrier"}),
    ("lose source", {"target retention", "source retention", "compact source"}),
)
"""What is left out where the first is in the mix, unless asked for: the README has the findings."""
NET_SHARE: Final = 0.70
"""Of the steps that move a request or an answer, where there is one."""
_ALWAYS: Final = {"write": 6.0, "replicate": 12.0, "tick": 8.0, "drive": 2.0}
_SOMETIMES: Final = {
    "transaction": 3.0,
    "end transaction": 2.0,
    "foreign": 1.0,
    "cut": 1.0,
    "cut side": 0.3,
    "hang": 0.3,
    "down": 0.3,
    "kill": 0.5,
    "start": 0.5,
    "freeze": 0.5,
    "thaw": 0.5,
    "second carrier": 0.5,
    "move lane": 0.5,
    "pause": 0.2,
    "elect": 0.7,
    "heal": 0.3,
    "lose source": 0.05,
    "lose target": 0.05,
    "forget sessions": 0.3,
    "expire": 0.2,
    "source retention": 0.2,
    "target retention": 0.2,
    "compact source": 0.5,
    "compact ledger": 0.5,
    "recreate source": 0.03,
    "late": 0.0,
}
"""`late` is no action: whether what was sent may arrive after its connection ended."""
_CROWDED: Final = {
    "transaction": 5.0,
    "end transaction": 5.0,
    "foreign": 6.0,
    "second carrier": 1.5,
    "freeze": 1.0,
    "thaw": 0.8,
    "kill": 0.7,
    "start": 0.7,
    "cut": 0.5,
}
"""Others that write between slots that write of the same lane, in some episodes that draw both. Of
the rest of what was drawn little is left, so that lanes go on."""
_ALSO_CROWDED: Final = ("late", "compact ledger", "elect", "move lane")
_SLOTS_MAX: Final = 3
_LOOKS_FAR: Final = 10_000


@dataclass(frozen=True, slots=True)
class Mix:
    names: list[str]
    weights: list[float]
    """Added up."""
    partition_bytes: int
    comes_late: bool
    """Whether what was sent may arrive after its connection ended."""


def drawn_mix(rng: random.Random, *, unpromised: bool) -> Mix:
    """Each episode leaves some kinds out: what always happens hides what it prevents."""
    share = rng.choice((0.2, 0.5, 0.8))
    drawn = {name: weight for name, weight in _SOMETIMES.items() if rng.random() < share}
    for name, others in () if unpromised else UNPROMISED:
        if name in drawn:
            drawn = {kept: weight for kept, weight in drawn.items() if kept not in others}
    weights = _ALWAYS | drawn
    if rng.random() < 0.3:
        weights["tick"] = 2.0
    partition_bytes = rng.choice((150, 400, 1_000, 1_000_000))
    if {"foreign", "second carrier"} <= drawn.keys() and partition_bytes < 1_000:
        also = {name: drawn[name] for name in _ALSO_CROWDED if name in drawn}
        weights = _ALWAYS | _CROWDED | also
    return Mix(
        list(weights), list(accumulate(weights.values())), partition_bytes, "late" in weights
    )


def draw(episode: Episode) -> Action:
    rng = episode.random
    number = int(rng.random() * _LOOKS_FAR)
    if rng.random() < NET_SHARE:
        return ("net", number, 0, 0)
    (name,) = rng.choices(episode.mix.names, cum_weights=episode.mix.weights)
    return (name, number, int(rng.random() * _LOOKS_FAR), int(rng.random() * _LOOKS_FAR))


def apply(episode: Episode, action: Action) -> bool:
    """Whether it could be applied."""
    return _ACTS[action[0]](episode, action) is not False


# -- the network and time


def _net(episode: Episode, action: Action) -> bool:
    moves = episode.net.moves()
    if not moves:
        return False
    episode.net.move(*moves[action[1] % len(moves)])
    return True


def _tick(episode: Episode, action: Action) -> bool:
    at_s = episode.next_event_s()
    if action[2] % 4 == 0:
        at_s = episode.loop.now_s + action[1] / _LOOKS_FAR * 3.0
    episode.advance(max(at_s, episode.loop.now_s + 0.0005))
    return True


def _replicate(episode: Episode, action: Action) -> bool:
    behind = [log for log in episode.logs if log.unreplicated or log.is_settling]
    if not behind:
        return False
    episode.world.replicate(behind[action[1] % len(behind)])
    episode.net.poke()
    return True


def _drops(episode: Episode, number: int) -> bool:
    return not episode.mix.comes_late or number % 2 == 0


def _cut(episode: Episode, action: Action) -> bool:
    wires = [wire for wire in episode.net.wires if wire.connection is not None]
    if not wires:
        return False
    wires[action[1] % len(wires)].cut(drops=_drops(episode, action[2]))
    return True


def _side(action: Action) -> Side:
    return (FLOW.source, FLOW.target)[action[1] % 2], BROKERS[action[2] % len(BROKERS)]


def _cut_side(episode: Episode, action: Action) -> None:
    episode.net.cut_side(_side(action), drops=_drops(episode, action[3]))


def _hang(episode: Episode, action: Action) -> None:
    for_s = (0.5, 4.0, 12.0, 60.0)[action[3] % 4]
    episode.net.hung_until_s[_side(action)] = episode.loop.now_s + for_s


def _down(episode: Episode, action: Action) -> None:
    side = _side(action)
    if side in episode.net.down:
        episode.net.down.discard(side)
    else:
        episode.net.down.add(side)
        episode.net.cut_side(side, drops=_drops(episode, action[3]))


def _forget_sessions(episode: Episode, action: Action) -> None:
    episode.net.forget_sessions(_side(action))


# -- clients


def _partition(episode: Episode, action: Action) -> int:
    return action[1] % episode.world.partitions


def _write(episode: Episode, action: Action) -> None:
    age_ms = 200_000_000 if action[3] % 10 == 0 else 0
    episode.world.write(_partition(episode, action), 1 + action[2] % 4, age_ms=age_ms)
    episode.net.poke()


def _transaction(episode: Episode, action: Action) -> None:
    episode.world.write_in_transaction(
        _partition(episode, action), action[3] % 2, 1 + action[2] % 3
    )


def _end_transaction(episode: Episode, action: Action) -> None:
    episode.world.end_transaction(
        _partition(episode, action), action[3] % 2, commits=action[2] % 2 == 0
    )


def _foreign(episode: Episode, action: Action) -> None:
    episode.world.write_foreign(_partition(episode, action), 1 + action[2] % 3)


# -- slots and the driver


def _drive(episode: Episode, action: Action) -> bool:
    if not episode.driver.is_open:
        return False
    if not episode.slots:
        episode.start_slot()
    episode.driver.look()
    for partition in episode.partitions:
        carriers = [slot for slot in episode.slots if slot.carries(partition)]
        if not carriers:
            slot = episode.slots[action[1] % len(episode.slots)]
            slot.add(episode.driver.spec(partition))
        elif len(carriers) == 1 and not carriers[0].is_frozen:
            episode.driver.decide(carriers[0], partition)
    return True


def _slot_and(episode: Episode, action: Action) -> int | None:
    return action[1] % len(episode.slots) if episode.slots else None


def _kill(episode: Episode, action: Action) -> bool:
    at = _slot_and(episode, action)
    if at is None:
        return False
    episode.kill(episode.slots[at], drops=_drops(episode, action[2]))
    return True


def _start(episode: Episode, action: Action) -> bool:
    if len(episode.slots) >= _SLOTS_MAX:
        return False
    episode.start_slot()
    return True


def _freeze(episode: Episode, action: Action) -> bool:
    at = _slot_and(episode, action)
    if at is None or episode.slots[at].is_frozen:
        return False
    episode.slots[at].process.freeze()
    return True


def _thaw(episode: Episode, action: Action) -> bool:
    frozen = [slot for slot in episode.slots if slot.is_frozen]
    if not frozen:
        return False
    frozen[action[1] % len(frozen)].process.thaw()
    return True


def _second_carrier(episode: Episode, action: Action) -> bool:
    """The lane is given to another slot, and the one that has it does not hear of that."""
    at, partition = _slot_and(episode, action), action[2] % episode.world.partitions
    if at is None or not episode.driver.is_open or episode.slots[at].carries(partition):
        return False
    episode.slots[at].add(episode.driver.spec(partition))
    return True


def _move_lane(episode: Episode, action: Action) -> bool:
    at, partition = _slot_and(episode, action), action[2] % episode.world.partitions
    if at is None or not episode.slots[at].carries(partition):
        return False
    episode.slots[at].let_go(partition)
    return True


def _pause(episode: Episode, action: Action) -> bool:
    at, partition = _slot_and(episode, action), action[2] % episode.world.partitions
    if at is None or not episode.slots[at].carries(partition):
        return False
    slot = episode.slots[at]
    (slot.pause if action[3] % 2 else slot.resume)(partition)
    return True


# -- brokers


def _elect(episode: Episode, action: Action) -> None:
    logs = episode.logs
    log = logs[action[1] % len(logs)]
    episode.world.elect(log, keeps=action[2] % 8, settles=action[3] % 2 == 0)
    episode.net.poke()


def _heal(episode: Episode, action: Action) -> None:
    episode.world.heal()
    episode.net.poke()


def _lose_source(episode: Episode, action: Action) -> None:
    episode.world.lose(episode.world.source_log(_partition(episode, action)), 1 + action[2] % 8)
    episode.net.poke()


def _lose_target(episode: Episode, action: Action) -> None:
    episode.world.lose(episode.world.target_log(_partition(episode, action)), 1 + action[2] % 8)
    episode.net.poke()


def _expire(episode: Episode, action: Action) -> bool:
    """A day without a batch: whoever was given up is gone by then, and nothing is on its way."""
    partition = _partition(episode, action)
    carriers = [slot for slot in episode.slots if slot.carries(partition)]
    if len(carriers) > 1 or any(slot.is_frozen for slot in episode.slots):
        return False
    if episode.net.is_producing(FLOW.target) or episode.world.deciding:
        return False
    episode.world.target_log(partition).expire_producers()
    episode.watch.forget()
    episode.loop.advance(episode.loop.now_s + 61.0)
    episode.net.poke()
    return True


def _source_retention(episode: Episode, action: Action) -> None:
    share = 1.0 if action[2] % 3 == 0 else action[3] / _LOOKS_FAR
    episode.world.delete_before(_partition(episode, action), share, of_source=True)
    episode.net.poke()


def _target_retention(episode: Episode, action: Action) -> None:
    share = 1.0 if action[2] % 3 == 0 else action[3] / _LOOKS_FAR
    episode.world.delete_before(_partition(episode, action), share, of_source=False)


def _compact_source(episode: Episode, action: Action) -> None:
    episode.world.compact_source(_partition(episode, action))


def _compact_ledger(episode: Episode, action: Action) -> None:
    episode.world.compact_ledger()


def _recreate_source(episode: Episode, action: Action) -> None:
    episode.world.recreate_source()
    episode.net.poke()


def _settle(episode: Episode, action: Action) -> None:
    """For schedules that are shrunk: all that is on its way arrives, in order."""
    move_all(episode)


def _calm(episode: Episode, action: Action) -> None:
    calm(episode)


_ACTS: Final[dict[str, Callable[[Episode, Action], bool | None]]] = {
    "net": _net,
    "tick": _tick,
    "replicate": _replicate,
    "cut": _cut,
    "cut side": _cut_side,
    "hang": _hang,
    "down": _down,
    "forget sessions": _forget_sessions,
    "write": _write,
    "transaction": _transaction,
    "end transaction": _end_transaction,
    "foreign": _foreign,
    "drive": _drive,
    "kill": _kill,
    "start": _start,
    "freeze": _freeze,
    "thaw": _thaw,
    "second carrier": _second_carrier,
    "move lane": _move_lane,
    "pause": _pause,
    "elect": _elect,
    "heal": _heal,
    "lose source": _lose_source,
    "lose target": _lose_target,
    "expire": _expire,
    "source retention": _source_retention,
    "target retention": _target_retention,
    "compact source": _compact_source,
    "compact ledger": _compact_ledger,
    "recreate source": _recreate_source,
    "settle": _settle,
    "calm": _calm,
}
__all__ = ["LEDGER", "Mix", "apply", "draw", "drawn_mix"]
