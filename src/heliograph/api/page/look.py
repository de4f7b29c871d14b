"""The mirror at one moment, gathered once for all who look at the page. Driver only.

Nothing is asked of a cluster: lanes are as slots told last, ledgers as the driver read them last.
With very many lanes a look takes a while, so it is kept for longer, and the page says how old it
is.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from heliograph.api.bodies import DrillBody, FlowBody
from heliograph.api.flows import judged_flows
from heliograph.api.lanes import Snapshot, worst_first
from heliograph.api.remembered import drill_of
from heliograph.api.state import ApiState
from heliograph.clock import monotonic_s, now_ms
from heliograph.decisions.decision import Decision
from heliograph.decisions.history import history_of
from heliograph.decisions.record import decisions_of
from heliograph.decisions.words import states_of
from heliograph.health.listing import FlowAlarms, alarms_of, kept_in
from heliograph.health.sight import LedgerFacts, facts_of
from heliograph.health.verdict import FlowVerdict, Word
from heliograph.ledger.canary_note import CanaryNote
from heliograph.ledger.entries import LossEntry
from heliograph.ledger.pipeline_note import PipelineFigures
from heliograph.ledger.trail import Change
from heliograph.ledger.view import LedgerView
from heliograph.model import FlowId, LaneProgress, Stalled

LOSSES_MAX: Final = 50
"""Shown of a flow, the newest; a sentence counts the others."""
HISTORY_MAX: Final = 50
_KEPT_S_MIN: Final = 1.0
_Pipelines = Mapping[tuple[FlowId, str], PipelineFigures]
_COST_SHARE: Final = 0.02
"""Of a core, at most, for looking, however many browsers there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What the ledger of one flow says, as the driver read it last."""

    age_s: float
    """Since it was read; infinite where it never was, and then nothing here is known."""
    facts: LedgerFacts
    losses: tuple[LossEntry, ...]
    losses_total: int
    alarms: FlowAlarms
    drill: DrillBody
    decisions: tuple[tuple[Decision, str], ...]
    history: tuple[Change, ...]
    """The newest first."""

    @property
    def canary(self) -> CanaryNote | None:
        return self.facts.canary

    @property
    def is_known(self) -> bool:
        return self.age_s != math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """From when on a flow has been as it is."""

    at_ms: int
    is_exact: bool
    """Otherwise it was so already when this driver first looked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Nothing in it changes."""

    snapshot: Snapshot
    lanes: Sequence[LaneProgress]
    """Of all flows, the worst first."""
    flows: Mapping[FlowId, FlowBody]
    verdicts: Mapping[FlowId, FlowVerdict]
    """Of flows that this driver can judge."""
    since: Mapping[FlowId, Since]
    remembered: Mapping[FlowId, Remembered]
    pipelines: _Pipelines
    """Of flows that this driver leads, by flow and name."""
    phase: str
    problem: str
    """Why a changed configuration is not followed."""


@dataclass(slots=True)
class Looks:
    """Belongs to the driver's loop. Keeps the last look, and since when each verdict holds."""

    state: ApiState
    _kept: tuple[float, Look] | None = None
    _making: asyncio.Lock = field(default_factory=asyncio.Lock)
    _seen: dict[FlowId, tuple[Word | None, Since]] = field(default_factory=dict)

    async def now(self) -> Look:
        """As it is, or was a second ago; longer ago where there are very many lanes."""
        async with self._making:
            if self._kept is None or monotonic_s() >= self._kept[0]:
                began_s = monotonic_s()
                made = await self._look()
                took_s = monotonic_s() - began_s
                self._kept = (monotonic_s() + max(_KEPT_S_MIN, took_s / _COST_SHARE), made)
            return self._kept[1]

    async def _look(self) -> Look:
        live, flows = self.state.live, self.state.flows
        snapshot = await self.state.snapshot()
        remembered = {
            flow: await live.ledgers.ask_recent(flow, self._question(flow), math.inf)
            for flow in flows
        }
        return await self.state.off_loop(self._made, snapshot, remembered, live.pipelines())

    def _question(self, flow: FlowId) -> _Question:
        return _Question(flow, self.state.live.ledgers.age_s(flow))

    def _made(
        self, snapshot: Snapshot, remembered: Mapping[FlowId, Remembered], pipelines: _Pipelines
    ) -> Look:
        """On a thread, with values alone; one look is made at a time."""
        facts = {flow: each.facts for flow, each in remembered.items() if each.is_known}
        bodies = judged_flows(self.state, snapshot, remembered, facts)
        judged = dict(zip(sorted(remembered), bodies, strict=True))
        verdicts = {flow: each for flow, (_, each) in judged.items() if each is not None}
        lanes = worst_first(snapshot.lanes)
        return Look(
            snapshot=snapshot,
            lanes=lanes,
            flows={flow: body for flow, (body, _) in judged.items()},
            verdicts=verdicts,
            since={flow: self._since(flow, verdicts.get(flow), lanes) for flow in remembered},
            remembered=remembered,
            pipelines=pipelines,
            phase=self.state.live.phase(),
            problem=self.state.live.changed().problem,
        )

    def _since(
        self, flow: FlowId, judged: FlowVerdict | None, lanes: Sequence[LaneProgress]
    ) -> Since:
        word = None if judged is None else judged.word
        before = self._seen.get(flow)
        if before is None or before[0] is not word:
            caused_ms = _caused_ms(flow, word, lanes)
            is_exact = before is not None or caused_ms is not None
            since = Since(at_ms=caused_ms or now_ms(), is_exact=is_exact)
            self._seen[flow] = before = (word, since)
        return before[1]


@dataclass(frozen=True, slots=True)
class _Question:
    flow: FlowId
    age_s: float

    def __call__(self, view: LedgerView) -> Remembered:
        at_ms = now_ms()
        losses = sorted(view.losses, key=lambda loss: -loss.at_ms)
        return Remembered(
            age_s=self.age_s,
            facts=facts_of(view, at_ms),
            losses=tuple(losses[:LOSSES_MAX]),
            losses_total=len(losses),
            alarms=alarms_of(kept_in(view), self.flow, at_ms),
            drill=drill_of(view),
            decisions=tuple(states_of(decisions_of(view), at_ms)),
            history=tuple(reversed(history_of(view, at_ms)[-HISTORY_MAX:])),
        )


def _caused_ms(flow: FlowId, word: Word | None, lanes: Sequence[LaneProgress]) -> int | None:
    """When the first lane came to be what the word is about, where lanes know that."""
    own = [at for at in lanes if at.lane.flow == flow]
    if word is Word.STALLED:
        times = [at.state.since_ms for at in own if isinstance(at.state, Stalled)]
    elif word is Word.BEHIND:
        times = [at.behind_since_ms for at in own if at.behind_since_ms >= 0]
    else:
        times = []
    return min(times, default=None)
