"""Keep the client quotas of the target as the source's. Runs on the driver.

What the source takes back is taken back on the target, if it was set by this flow: the ledger knows
which were. Quotas of the target's own are never touched, but for one that the source sets too.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from heliograph.broker.quotas import QuotaAdmin, QuotaKey
from heliograph.config.schema import ClusterConfig, FlowConfig
from heliograph.errors import BrokerError, WireError
from heliograph.ledger.entries import Entry, MemoEntry, Tombstone
from heliograph.ledger.memo import Memo, forget_memo
from heliograph.ledger.service import LedgerService
from heliograph.ledger.view import LedgerView

log = logging.getLogger(__name__)

_SUBJECT: Final = "client-quotas"
_NOTE_BYTES: Final = 256 * 1024
"""Half of what the ledger takes in one note."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    quotas: tuple[tuple[tuple[tuple[str, str | None], ...], str], ...] = ()
    """Entities and names."""


_MEMO: Final[Memo[_Written]] = Memo(_Written)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaPlan:
    changes: Mapping[QuotaKey, float | None] = field(default_factory=dict)
    """None takes the quota away."""
    before: Mapping[QuotaKey, float] = field(default_factory=dict)
    """What the target has for those, where it has something."""


def plan_quotas(
    source: Mapping[QuotaKey, float],
    target: Mapping[QuotaKey, float],
    written: frozenset[QuotaKey],
) -> QuotaPlan:
    changes: dict[QuotaKey, float | None] = {
        key: value for key, value in source.items() if target.get(key) != value
    }
    changes |= {key: None for key in written if key in target and key not in source}
    ordered = dict(sorted(changes.items(), key=lambda change: str(change[0])))
    return QuotaPlan(changes=ordered, before={key: target[key] for key in ordered if key in target})


def written_quotas(view: LedgerView) -> frozenset[QuotaKey]:
    """Set on the target by this flow. A note that cannot be read takes nothing back."""
    found: set[QuotaKey] = set()
    for subject in _subjects(view):
        try:
            note = _MEMO.read(view, subject)
        except WireError:
            continue
        found.update(QuotaKey(*each) for each in (note.quotas if note is not None else ()))
    return frozenset(found)


def quotas_entries(view: LedgerView, written: frozenset[QuotaKey]) -> list[Entry | Tombstone]:
    """As many notes as it takes; those that are left over go."""
    held = [(each.entity, each.name) for each in sorted(written, key=str)]
    entries: list[Entry | Tombstone] = []
    start = 0
    while start < len(held) or not entries:
        end, size = start, 0
        while end < len(held) and (size := size + len(json.dumps(held[end])) + 2) < _NOTE_BYTES:
            end += 1
        # No entity comes near the bound by itself: Kafka's names have limits.
        end = max(end, start + 1)
        subject = _SUBJECT + (f"/{len(entries)}" if entries else "")
        entries.append(_MEMO.entry(subject, _Written(quotas=tuple(held[start:end]))))
        start = end
    made = {each.subject for each in entries if isinstance(each, MemoEntry)}
    return entries + [forget_memo(each) for each in _subjects(view) if each not in made]


def _subjects(view: LedgerView) -> list[str]:
    return [each for each in view.memos if each == _SUBJECT or each.startswith(f"{_SUBJECT}/")]


class QuotasJob:
    what: Final = "client quotas"

    def __init__(
        self,
        flow: FlowConfig,
        source: ClusterConfig,
        target: ClusterConfig,
        ledgers: LedgerService,
    ) -> None:
        self.flow: Final = flow.id
        self.interval_s: Final = float(flow.quotas.interval_s)
        self._source, self._target = QuotaAdmin(source), QuotaAdmin(target)
        self._ledgers = ledgers

    def step(self) -> None:
        source = self._source.quotas()
        written = self._ledgers.ask(self.flow, written_quotas)
        plan = plan_quotas(source, self._target.quotas(), written)
        if not plan.changes:
            return
        # Before they are set: one that the ledger does not know would never be taken back.
        known = written | {key for key, value in plan.changes.items() if value is not None}
        self._keep(known)
        refused = self._target.change(plan.changes)
        for key, value in plan.changes.items():
            if key not in refused:
                done = "removed" if value is None else f"set to {value:g}"
                log.info("%s: %s: %s", self.flow, key, done)
        gone = {key for key, value in plan.changes.items() if value is None and key not in refused}
        never = {key for key in refused if key not in written}
        self._keep(known - gone - never)
        if refused:
            raise BrokerError(f"{len(refused)} quotas were refused: {next(iter(refused.values()))}")

    def _keep(self, written: frozenset[QuotaKey]) -> None:
        entries = self._ledgers.ask(self.flow, lambda view: quotas_entries(view, written))
        self._ledgers.note(self.flow, entries)
