"""What becomes of lanes whose source lost records or was created again. Runs on the driver."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from heliograph.clock import monotonic_s
from heliograph.config.schema import FlowConfig
from heliograph.driver.problems import problem_of
from heliograph.errors import BrokerError, MirrorError
from heliograph.ledger.new_starts import Overrun, Waiting
from heliograph.ledger.service import LedgerService
from heliograph.model import (
    FlowId,
    Lane,
    LaneId,
    LaneProgress,
    OffsetRange,
    Stalled,
    StallReason,
    TopicId,
)

log = logging.getLogger(__name__)

DECIDED_S: Final = 30.0
"""How long a slot may take to follow a decision before it is made again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was decided for lanes of one flow."""

    resumed: tuple[LaneId, ...]
    """May go on at once."""
    renewed: bool
    """Whether others go on once they are planned with the new topics' ids."""
    problem: MirrorError | None
    """Why lanes are still to be decided on, of one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decided:
    """The stall of a lane that a policy was applied to: the slot needs a moment to follow it.

    The same may happen again before anything was mirrored: more is lost, or there is yet another
    topic. That is another stall, and decided on again at once. A report of this one that comes late
    is not, and one that lasts is after a while: a decision for a place that the lane has left by
    then says nothing.
    """

    position: int
    since_ms: int
    lost: OffsetRange | None


class Policies:
    """`on.retention.overrun` and `on.topic.recreated` of all flows, and what they decided."""

    def __init__(self, flows: Mapping[FlowId, FlowConfig], ledgers: LedgerService) -> None:
        self._flows, self._ledgers = flows, ledgers
        self._decided: dict[LaneId, tuple[_Decided, float]] = {}
        """With when that was."""

    def lets_go_on(self, flow: FlowId, state: Stalled) -> bool:
        """Whether the configuration says what becomes of a lane that stalls like this."""
        config = self._flows[flow]
        if state.reason is StallReason.RETENTION_OVERRUN and state.lost is not None:
            return config.on_retention_overrun == "skip"
        return (
            state.reason is StallReason.TOPIC_RECREATED and config.on_topic_recreated == "restart"
        )

    def undecided(
        self, stalled: Iterable[LaneProgress], lanes: Mapping[LaneId, Lane]
    ) -> dict[FlowId, list[Waiting]]:
        """The lanes among `lanes` that a policy lets go on and that nothing was decided for."""
        found: dict[FlowId, list[Waiting]] = {}
        for at in stalled:
            state, lane = at.state, lanes.get(at.lane)
            if (
                lane is not None
                and isinstance(state, Stalled)
                and self.lets_go_on(at.lane.flow, state)
                and not self._is_decided(at, state)
            ):
                found.setdefault(at.lane.flow, []).append(Waiting(lane=lane, at=at))
        return found

    def _is_decided(self, at: LaneProgress, state: Stalled) -> bool:
        stall, decided_s = self._decided.get(at.lane, (None, 0.0))
        return stall == _stall(at, state) and monotonic_s() - decided_s < DECIDED_S

    def decide(self, flow: FlowId, waiting: Sequence[Waiting]) -> Outcome:
        """Write what becomes of these lanes of one flow: a thousand take as long as one. Blocks."""
        overrun, recreated = _sorted(waiting)
        skipped = self._ledgers.skip(flow, overrun) if overrun else []
        renewed = self._ledgers.restart(flow, recreated) if recreated else []
        resumed: list[LaneId] = []
        needs_plan, problem = False, None
        answers: list[TopicId | BrokerError | None] = [*skipped, *renewed]
        for each, answer in zip([*overrun, *recreated], answers, strict=True):
            if isinstance(answer, BrokerError):
                problem = problem or problem_of(answer, f"{each.lane.id}: not decided")
                continue
            _say(each)
            if isinstance(each.at.state, Stalled):
                stall = _stall(each.at, each.at.state)
                self._decided[each.lane.id] = stall, monotonic_s()
            if answer is None or answer == each.lane.source_topic_id:
                resumed.append(each.lane.id)
            else:
                needs_plan = True
        return Outcome(resumed=tuple(resumed), renewed=needs_plan, problem=problem)


def _stall(at: LaneProgress, state: Stalled) -> _Decided:
    return _Decided(position=at.position, since_ms=state.since_ms, lost=state.lost)


def _sorted(waiting: Sequence[Waiting]) -> tuple[list[Overrun], list[Waiting]]:
    """Lanes that lost records, and those whose topic was created again."""
    overrun: list[Overrun] = []
    recreated: list[Waiting] = []
    for each in waiting:
        state = each.at.state
        if isinstance(state, Stalled) and state.lost is not None:
            overrun.append(Overrun(lane=each.lane, at=each.at, lost=state.lost))
        else:
            recreated.append(each)
    return overrun, recreated


def _say(decided: Waiting) -> None:
    if isinstance(decided, Overrun):
        lost = decided.lost
        log.warning("%s: gives up source offsets [%d, %d)", decided.lane.id, lost.start, lost.end)
    else:
        log.warning("%s: goes on with the recreated topic", decided.lane.id)
