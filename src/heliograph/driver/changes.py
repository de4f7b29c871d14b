"""What a mirror is told while it runs: the configuration it should run with. On its loop.

Whoever knows the configuration offers it: the watched file of `heliograph run` (`driver.watching`),
or the connectors of `heliograph connect`. The mirror follows what was offered last, whole or not at
all (`driver.applying`); what became of it is in `status`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from heliograph.broker.blocking import Changed, first_of
from heliograph.clock import now_ms
from heliograph.config.difference import Difference
from heliograph.config.schema import MirrorConfig
from heliograph.errors import BrokerError, ConfigError, MirrorError
from heliograph.ledger.access import LedgerAccess
from heliograph.ledger.config_note import config_note
from heliograph.ledger.leadership import Leaderships
from heliograph.ledger.trail import DONE, Change, change_entries
from heliograph.model import FlowId
from heliograph.processes import operator

log = logging.getLogger("heliograph")

TOGETHER_S: Final = 0.3
"""Changes that come so soon after each other are one."""
AGAIN_S: Final = 5.0
"""How often a change is tried again that a cluster does not let act."""
_APPLIED_MAX: Final = 20
_LED_LATE_MS: Final = 60_000
"""A flow that begins is led after some seconds. One that is led later has been another driver's,
which has noted the change."""


@dataclass(frozen=True, slots=True)
class _Applied:
    """A change that acts, for the histories of the flows that it concerns."""

    change: Change
    concerned: frozenset[FlowId]
    """Empty where it concerns the mirror as a whole."""
    noted: set[FlowId] = field(default_factory=set)

    def awaits(self, flow: FlowId) -> bool:
        is_recent = now_ms() - self.change.at_ms < _LED_LATE_MS
        is_concerned = not self.concerned or flow in self.concerned
        return is_recent and is_concerned and flow not in self.noted


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigStatus:
    """Whether a mirror runs with what it was told last."""

    applied_ms: int | None = None
    """When the last change acted; None where none did since the start."""
    changes: tuple[str, ...] = ()
    """What it changed, masked."""
    problem: str = ""
    """Why what was told last is not followed, in one line; empty where it is."""


class ConfigChanges:
    """From one who offers to one mirror. Used on the mirror's loop."""

    def __init__(self) -> None:
        self.status = ConfigStatus()
        self._offered: MirrorConfig | None = None
        self._offers = self._tried = self._settled = 0
        self._applied: deque[_Applied] = deque(maxlen=_APPLIED_MAX)
        self.changed: Final = Changed()

    @property
    def is_settled(self) -> bool:
        """Whether what was offered last acts, or will not."""
        return self._offers == self._settled

    def offer(self, config: MirrorConfig) -> None:
        """Run with this; returns before it acts."""
        self._offered = config
        self._offers += 1
        self.changed.notify()

    def unusable(self, error: MirrorError) -> None:
        """There is something new, and it cannot be used: the mirror goes on as it does."""
        self._offered = None
        self._offers += 1
        self._settled = self._tried = self._offers
        self._show_problem(error, "mended")

    async def followed(self) -> None:
        """Until what was offered last acts, or did not when it was tried."""
        while self._tried != self._offers:
            await self.changed.wait()

    async def keep_noted(self, leaderships: Leaderships, ledgers: LedgerAccess) -> None:
        """Have the ledger of every flow that is led say what the problem is, and keep in its
        history what was changed, until cancelled: `heliograph status` and `decisions` ask no
        driver."""
        told: dict[FlowId, str] = {}
        while True:
            problem = self.status.problem
            for flow in leaderships.led:
                # What cannot be written now is written at the next turn.
                with contextlib.suppress(MirrorError):
                    if told.get(flow, "") != problem:
                        await ledgers.note(flow, [config_note(ledgers.author, problem, now_ms())])
                        told[flow] = problem
                    await self._note_applied(flow, ledgers)
            await first_of(self.changed, leaderships.changed, timeout_s=AGAIN_S)

    async def _note_applied(self, flow: FlowId, ledgers: LedgerAccess) -> None:
        for each in [each for each in self._applied if each.awaits(flow)]:
            entries = await ledgers.ask(flow, partial(change_entries, change=each.change))
            await ledgers.note(flow, entries)
            each.noted.add(flow)

    async def follow(self, apply: Callable[[MirrorConfig], Awaitable[Difference]]) -> None:
        """For the mirror, until cancelled. `apply` raises `BrokerError` where it may succeed later,
        and `ConfigError` where it will not."""
        while True:
            if self.is_settled:
                await self.changed.wait()
            await asyncio.sleep(TOGETHER_S)
            offer, config = self._offers, self._offered
            if config is None or offer == self._settled:
                continue
            try:
                difference = await apply(config)
            except BrokerError as exc:
                self._tried = max(self._tried, offer)
                self._show_problem(exc, f"mended, and tries again every {AGAIN_S:.0f} s")
                await first_of(self.changed, timeout_s=AGAIN_S)
            except ConfigError as exc:
                self._settle(offer)
                self._show_problem(exc, "mended")
            else:
                self._show_applied(difference)
                self._settle(offer)

    def _settle(self, offer: int) -> None:
        self._settled = max(self._settled, offer)
        self._tried = max(self._tried, offer)
        self.changed.notify()

    def _show_problem(self, error: MirrorError, until: str) -> None:
        said = "; ".join(error.problems) if isinstance(error, ConfigError) else str(error)
        where = f"{error.source}: " if isinstance(error, ConfigError) else ""
        problem = f"the changed configuration is not followed: {where}{said}"
        if problem != self.status.problem:
            log.error("%s; the mirror goes on as before until that is %s", problem, until)
        self.status = replace(self.status, problem=problem)
        self.changed.notify()

    def _show_applied(self, difference: Difference) -> None:
        if self.status.problem:
            log.info("the configuration is followed again")
        if difference.changes:
            what = "; ".join(difference.words)
            log.info("configuration changed: %s", what)
            self.status = ConfigStatus(applied_ms=now_ms(), changes=difference.words)
            change = Change(who=operator(), verb="reload", what=what).ended(DONE)
            self._applied.append(_Applied(change, difference.concerned))
        else:
            self.status = replace(self.status, problem="")
