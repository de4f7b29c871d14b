"""One run of the simulation: a world, slots, and a schedule that is drawn or given.

An action is a name and numbers. What an action cannot be applied to, it leaves alone; so any part
of a schedule is a schedule, which is what shrinking needs.
"""

from __future__ import annotations

import gc
import random
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest import mock

from heliograph.copy.lane import CarriedLane
from tests.kit.fake_log import FakeLog
from tests.sim import actions
from tests.sim.calm import calm
from tests.sim.checks import Watch
from tests.sim.loop import EPOCH_MS, Clock, Process, Spinning, VirtualLoop
from tests.sim.net import Net
from tests.sim.slots import SimDriver, SimSlot
from tests.sim.truth import Violation
from tests.sim.world import World

Action = tuple[str, int, int, int]
CALM_EVERY = 1_500


@dataclass(slots=True)
class Outcome:
    schedule: list[Action]
    steps: int
    callbacks: int
    violation: str | None = None
    at_step: int = -1
    virtual_s: float = 0.0
    copied: int = 0
    seen: dict[str, int] = field(default_factory=dict)
    """How often each kind of action was applied."""


class Episode:
    def __init__(self, seed: str, *, unpromised: bool = False) -> None:
        self.random = random.Random(f"episode {seed}")
        self.mix = actions.drawn_mix(self.random, unpromised=unpromised)
        self.loop = VirtualLoop()
        self.world = World(seed, partitions=2)
        self.net = Net(self.loop, self.world.clusters, self.world.produced)
        self.net.comes_late = self.mix.comes_late
        if "foreign" in self.mix.names and not unpromised:
            for number in self.partitions:
                self.world.target_log(number).lags = False
        self.slots: list[SimSlot] = []
        self.watch = Watch()
        self.steps = 0
        self.seen: dict[str, int] = {}
        self._slot_numbers = 0
        self.driver: SimDriver

    @property
    def partitions(self) -> range:
        return range(self.world.partitions)

    @property
    def logs(self) -> list[FakeLog]:
        return list(self.world.logs())

    def begin(self) -> None:
        self.world.now_ms = EPOCH_MS + int(self.loop.now_s * 1000)
        self.driver = SimDriver(self.loop, self.world)
        self.settle()

    def start_slot(self) -> SimSlot:
        self._slot_numbers += 1
        slot = SimSlot(self.loop, f"slot-{self._slot_numbers}", self.mix.partition_bytes)
        self.slots.append(slot)
        return slot

    def kill(self, slot: SimSlot, *, drops: bool) -> None:
        self.slots.remove(slot)
        slot.kill()
        for wire in tuple(self.net.wires):
            if wire.owner is slot.process:
                wire.cut(drops=drops)

    def settle(self) -> None:
        self.loop.settle()

    def advance(self, until_s: float) -> None:
        while (due_s := self.net.next_due_s()) is not None and due_s <= until_s:
            self.loop.advance(max(due_s, self.loop.now_s))
            self.net.poke()
            self.settle()
        self.loop.advance(until_s)
        self.world.now_ms = EPOCH_MS + int(self.loop.now_s * 1000)
        self.look()

    def look(self) -> None:
        for slot in self.slots:
            for partition in self.partitions:
                if slot.carries(partition):
                    self.watch.look(slot, partition, self.loop.now_s)

    def next_event_s(self) -> float:
        times = [self.loop.next_timer_s(), self.net.next_due_s()]
        return min((each for each in times if each is not None), default=self.loop.now_s + 1)

    def step(self, action: Action) -> None:
        self.steps += 1
        if actions.apply(self, action):
            self.seen[action[0]] = self.seen.get(action[0], 0) + 1
        self.settle()


def run(
    seed: str,
    steps: int,
    schedule: Sequence[Action] | None = None,
    *,
    unpromised: bool = False,
) -> Outcome:
    """Play so many drawn actions, or those of the schedule; then all is made well and checked."""
    with simulated(seed, unpromised=unpromised) as episode:
        done: list[Action] = []
        outcome = Outcome(done, 0, 0)
        try:
            episode.begin()
            for number in range(steps if schedule is None else len(schedule)):
                action = actions.draw(episode) if schedule is None else schedule[number]
                if schedule is None and number % CALM_EVERY == CALM_EVERY - 1:
                    action = ("calm", 0, 0, 0)
                done.append(action)
                episode.step(action)
            calm(episode)
        except (Violation, Spinning) as exc:
            outcome.violation, outcome.at_step = f"{type(exc).__name__}: {exc}", len(done)
        outcome.steps, outcome.callbacks = episode.steps, episode.loop.callbacks
        outcome.virtual_s = episode.loop.now_s - 1_000.0
        outcome.copied = sum(len(each.copied) for each in episode.world.truth.values())
        outcome.seen = episode.seen
        for process in (*(slot.process for slot in episode.slots), episode.driver.process):
            process.kill()
        return outcome


@contextmanager
def simulated(seed: str, *, unpromised: bool = False) -> Iterator[Episode]:
    """With the clock, the network and what is random of this episode in place of the real ones."""
    made = random.Random(f"ids {seed}")

    def new_id() -> uuid.UUID:
        return uuid.UUID(int=made.getrandbits(128), version=4)

    was_enabled = gc.isenabled()
    gc.disable()
    try:
        episode = Episode(seed, unpromised=unpromised)
        with (
            episode.loop,
            mock.patch("heliograph.clock.time", Clock(episode.loop)),
            mock.patch("heliograph.broker.cluster.open_connection", episode.net.open),
            mock.patch("uuid.uuid4", new_id),
            # Sets of lanes are gone through in the order of this, and by address otherwise.
            mock.patch.object(CarriedLane, "__hash__", _by_partition),
        ):
            yield episode
    finally:
        if was_enabled:
            gc.enable()


def _by_partition(lane: CarriedLane) -> int:
    return lane.spec.id.source.partition


__all__ = ["Action", "Episode", "Outcome", "Process", "run"]
