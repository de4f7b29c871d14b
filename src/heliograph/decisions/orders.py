"""What the decisions about a flow amount to for each of its lanes. No I/O; runs anywhere.

Of all decisions of one aspect that mean a lane, the one with the narrowest scope counts: a
partition before a topic by name, that before a regex, that before the whole flow. Of equally narrow
ones the later in the ledger counts. One whose end has come is as if it had not been made, so what
was decided before holds again; one that was replaced without an end does not come back.

Throttles are nested: a lane keeps all that mean it, the flow's and its topic's. A throttle without
a rate lifts the wider ones for its lanes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from heliograph.decisions.decision import Breadth, Decision, Verb
from heliograph.model import LaneId, SlotId, TopicName, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneOrders:
    """What one lane should be."""

    paused: Decision | None = None
    placed: Decision | None = None
    """A pin or move that says which slots may carry the lane."""
    throttles: tuple[Decision, ...] = ()
    """The widest first; the lane keeps all of them."""
    of_source: Decision | None = None
    """A throttle of all lanes that read from the lane's source."""
    of_target: Decision | None = None
    """Likewise, that write to its target."""
    excluded: Decision | None = None
    stopped: Decision | None = None
    rewound: Decision | None = None
    """A rewind that is not carried out yet: the lane must be in no slot."""

    @property
    def is_carried(self) -> bool:
        return self.excluded is None and self.stopped is None and self.rewound is None

    @property
    def limits(self) -> tuple[Decision, ...]:
        """Every throttle that the lane keeps, those of its clusters first."""
        clusters = (each for each in (self.of_source, self.of_target) if each is not None)
        return (*clusters, *self.throttles)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        found = (self.stopped, self.excluded, self.rewound, self.paused, self.placed)
        return (*(each for each in found if each is not None), *self.limits)


FREE: Final = LaneOrders()
"""Nothing was decided about the lane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowOrders:
    """What the lanes of one flow should be; made by `orders_of`."""

    standing: tuple[Decision, ...] = ()
    """The decisions that hold, in the order in which they were made."""
    stopped: Decision | None = None
    drained: frozenset[SlotId] = frozenset()
    """Slots that carry no lane of the flow."""
    _topics: dict[TopicName, LaneOrders] = field(default_factory=dict, compare=False)
    _apart: dict[TopicName, frozenset[int]] = field(default_factory=dict, compare=False)
    """Partitions that a decision names."""

    def lane(self, lane: TopicPartition) -> LaneOrders:
        if not self.standing:
            return FREE
        # There may be tens of thousands of lanes, so what a topic's lanes share is found once.
        if lane.topic not in self._topics:
            orders = _lane_orders(self.standing, self.stopped, lane.topic, None)
            self._topics[lane.topic] = orders
            self._apart[lane.topic] = frozenset(
                number
                for each in self.standing
                if each.scope.partitions and each.scope.has_topic(lane.topic)
                for number in each.scope.partitions
            )
        if lane.partition in self._apart[lane.topic]:
            return _lane_orders(self.standing, self.stopped, lane.topic, lane.partition)
        return self._topics[lane.topic]

    @property
    def paused(self) -> Decision | None:
        """A pause of the whole flow; what is narrower may let some of its lanes go on."""
        last = self.about_all(Verb.PAUSE)
        return last if last is not None and last.verb is Verb.PAUSE else None

    def about_all(self, verb: Verb) -> Decision | None:
        """The decision of the verb's aspect that counts for the whole flow."""
        whole = [each for each in self.standing if each.scope.breadth is Breadth.FLOW]
        return _last(whole, verb.aspect)

    def lanes(self, ids: Iterable[LaneId]) -> Mapping[LaneId, LaneOrders]:
        return {lane: self.lane(lane.source) for lane in ids}

    def choice(self, topic: TopicName) -> tuple[bool, str] | None:
        """As `chosen`, for `topics.selection`: whether it is mirrored, and in whose words."""
        found = self.chosen(topic)
        if found is None:
            return None
        why = f": {found.why}" if found.why else ""
        return found.verb is Verb.INCLUDE, f"{found.verb}d by {found.who}{why}"

    def chosen(self, topic: TopicName) -> Decision | None:
        """What was decided about whether the topic is mirrored; None leaves it to the file."""
        return _winner(self.standing, Verb.EXCLUDE.aspect, topic, None)

    @property
    def rewinds(self) -> tuple[Decision, ...]:
        """To be carried out, in this order."""
        return tuple(each for each in self.standing if each.verb is Verb.REWIND)


def orders_of(decisions: Sequence[Decision], now_ms: int) -> FlowOrders:
    """Of decisions in the order of the ledger."""
    standing = standing_of(decisions, now_ms)
    stop = _last(standing, Verb.STOP.aspect)
    drain = _last(standing, Verb.DRAIN.aspect)
    return FlowOrders(
        standing=standing,
        stopped=stop if stop is not None and stop.verb is Verb.STOP else None,
        drained=frozenset() if drain is None else drain.slot_ids,
    )


def standing_of(decisions: Sequence[Decision], now_ms: int) -> tuple[Decision, ...]:
    """Those that hold now: neither withdrawn, nor ended, nor done, nor replaced."""
    replaced = replaced_by(decisions)
    return tuple(
        each
        for each in decisions
        if each.withdrawn is None
        and each.done_ms is None
        and each.id not in replaced
        and not each.has_ended(now_ms)
    )


def replaced_by(decisions: Sequence[Decision]) -> Mapping[str, Decision]:
    """By id: the later decision of the same aspect and scope, for good.

    It stays replaced when the later one is withdrawn. Each rewind stands for itself.
    """
    replaced: dict[str, Decision] = {}
    last: dict[object, list[str]] = {}
    for each in decisions:
        if each.verb is Verb.REWIND:
            continue
        before = last.setdefault(each.key, [])
        if each.until_ms is None:
            replaced.update((id_, each) for id_ in before)
            before.clear()
        before.append(each.id)
    return replaced


def _lane_orders(
    standing: Sequence[Decision], stopped: Decision | None, topic: str, partition: int | None
) -> LaneOrders:
    """Without a partition: of every one that no decision names."""
    motion = _winner(standing, Verb.PAUSE.aspect, topic, partition)
    place = _winner(standing, Verb.PIN.aspect, topic, partition)
    choice = _winner(standing, Verb.EXCLUDE.aspect, topic, partition)
    found = LaneOrders(
        paused=motion if motion is not None and motion.verb is Verb.PAUSE else None,
        placed=place if place is not None and place.slots else None,
        throttles=_throttles(standing, topic, partition),
        of_source=_of_cluster(standing, Verb.THROTTLE_SOURCE),
        of_target=_of_cluster(standing, Verb.THROTTLE_TARGET),
        excluded=choice if choice is not None and choice.verb is Verb.EXCLUDE else None,
        stopped=stopped,
        rewound=_winner(standing, Verb.REWIND.aspect, topic, partition),
    )
    # Most lanes are free, and who shows ten thousand of them knows it by identity.
    return FREE if found == FREE else found


def _winner(
    standing: Sequence[Decision], aspect: str, topic: str, partition: int | None
) -> Decision | None:
    found: Decision | None = None
    for each in _meant(standing, aspect, topic, partition):
        if found is None or each.scope.breadth >= found.scope.breadth:
            found = each
    return found


def _throttles(
    standing: Sequence[Decision], topic: str, partition: int | None
) -> tuple[Decision, ...]:
    by_breadth: dict[Breadth, Decision] = {}
    for each in _meant(standing, Verb.THROTTLE.aspect, topic, partition):
        by_breadth[each.scope.breadth] = each
    kept: list[Decision] = []
    for breadth in sorted(by_breadth):
        each = by_breadth[breadth]
        kept = [] if each.bytes_per_s is None else [*kept, each]
    return tuple(kept)


def _of_cluster(standing: Sequence[Decision], verb: Verb) -> Decision | None:
    """A cluster bears what it bears: no narrower throttle lifts it."""
    last = _last(standing, verb.aspect)
    return last if last is not None and last.bytes_per_s is not None else None


def _meant(
    standing: Sequence[Decision], aspect: str, topic: str, partition: int | None
) -> Iterable[Decision]:
    for each in standing:
        if each.verb.aspect != aspect or not each.scope.has_topic(topic):
            continue
        if each.scope.partitions and (partition is None or not each.scope.has_partition(partition)):
            continue
        yield each


def _last(standing: Sequence[Decision], aspect: str) -> Decision | None:
    return next((each for each in reversed(standing) if each.verb.aspect == aspect), None)
