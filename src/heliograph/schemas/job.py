"""Keep the target's registry as the source's, while a mirror runs. Runs on the driver."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from heliograph.clock import now_ms
from heliograph.config.schema import ClusterConfig, FlowConfig
from heliograph.errors import RegistryError
from heliograph.ledger.service import LedgerService
from heliograph.model import FlowId, TopicName
from heliograph.registry.client import Registry
from heliograph.registry.pairing import subject_names
from heliograph.schemas.copying import Importing, SchemaCopier, SchemasCopied
from heliograph.schemas.note import (
    importing_entry,
    importing_of,
    schema_ids_entries,
    schema_ids_of,
)
from heliograph.schemas.plan import SchemasPlan
from heliograph.topics.naming import naming_policy

log = logging.getLogger(__name__)

_IMPORT_MS_MAX: Final = 15_000
"""A subject whose import was noted longer ago was left in import mode by a run that was killed. One
that imports for long notes it every few seconds; should it wait for its registry meanwhile, it is
refused the next version, and comes to it at its next turn."""


class SchemasJob:
    """Each step looks at both registries and registers what is missing.

    A registry that does not answer is this job's problem, and nobody else's; a subject that cannot
    be copied is one of the sentences of the flow, and the others go on.
    """

    what: Final = "schemas"

    def __init__(
        self,
        flow: FlowConfig,
        source: ClusterConfig,
        target: ClusterConfig,
        ledgers: LedgerService,
    ) -> None:
        self.flow: Final = flow.id
        self.interval_s: Final = float(flow.schemas.interval_s)
        self._ledgers = ledgers
        self._copier = copier_of(flow, source, target)

    def step(self) -> None:
        copied = copy_once(self._copier, self._ledgers, self.flow)[1]
        for each in copied.registered:
            log.info("%s: registered schema %s (id %s)", self.flow, each, each.id)
        if copied.problems:
            more = len(copied.problems) - 1
            said = copied.problems[0] + (f"; and {more} more" if more else "")
            raise RegistryError("schemas are not copied", said)


def copier_of(flow: FlowConfig, source: ClusterConfig, target: ClusterConfig) -> SchemaCopier:
    policy = naming_policy(flow)
    names = subject_names(flow.schemas.rename, lambda topic: policy.target_topic(TopicName(topic)))
    return SchemaCopier(
        flow.schemas,
        Registry(source.alias, source.registry),
        Registry(target.alias, target.registry),
        names,
    )


def copy_once(
    copier: SchemaCopier, ledgers: LedgerService, flow: FlowId
) -> tuple[SchemasPlan, SchemasCopied]:
    """Look, copy, and note the ids. Raises `RegistryError` where a registry is down."""
    known, importing = ledgers.ask(flow, lambda view: (schema_ids_of(view), importing_of(view)))

    def remember(subjects: tuple[Importing, ...]) -> None:
        ledgers.note(flow, [importing_entry(subjects)])

    if importing and now_ms() - max(each.at_ms for each in importing) > _IMPORT_MS_MAX:
        copier.put_back(importing)
        remember(())
    plan = copier.look()
    copied = copier.copy(plan, remember)
    ids = copier.look().ids if copied.registered else plan.ids
    _note_ids(ledgers, flow, known, ids)
    return plan, copied


def _note_ids(
    ledgers: LedgerService, flow: FlowId, known: Mapping[int, int], ids: Mapping[int, int]
) -> None:
    entries = schema_ids_entries(known, ids)
    if entries:
        ledgers.note(flow, entries)
