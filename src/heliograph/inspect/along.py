"""What goes along with a flow besides topics: schemas, quotas, users' names. I/O; on the driver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from heliograph.broker.quotas import QuotaAdmin
from heliograph.compat.quotas import QuotaPlan, plan_quotas, written_quotas
from heliograph.config.schema import ClusterConfig, FlowConfig
from heliograph.errors import BrokerError, RegistryError
from heliograph.ledger.view import LedgerView
from heliograph.schemas.job import copier_of
from heliograph.schemas.plan import SchemasPlan

_ANSWER_S_MAX: Final = 10.0
_NO_IDS: Final = (
    "schemas.ids is map, and no transform SchemaIds exchanges the ids in records: consumers of the "
    "target would look them up in the wrong registry"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Along:
    """Each is None where the flow does not ask for it, or it could not be looked at."""

    schemas: SchemasPlan | None = None
    quotas: QuotaPlan | None = None
    missing_users: tuple[str, ...] = ()
    """SCRAM users of the source, with their mechanisms, that the target does not have so."""
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


NOTHING_ALONG: Final = Along()


def look_along(
    flow: FlowConfig, source: ClusterConfig, target: ClusterConfig, ledger: LedgerView
) -> Along:
    """Asks only for what the flow asks for; what cannot be seen is one of the problems."""
    problems: list[str] = []
    schemas: SchemasPlan | None = None
    if flow.schemas.enabled:
        try:
            schemas = copier_of(flow, source, target).look()
        except RegistryError as exc:
            problems.append(f"schemas cannot be compared: {exc}")
        else:
            problems += schemas.problems
    quotas: QuotaPlan | None = None
    missing: tuple[str, ...] = ()
    if flow.quotas.enabled:
        reads = QuotaAdmin(source, timeout_s=_ANSWER_S_MAX)
        writes = QuotaAdmin(target, timeout_s=_ANSWER_S_MAX)
        try:
            quotas = plan_quotas(reads.quotas(), writes.quotas(), written_quotas(ledger))
        except BrokerError as exc:
            problems.append(f"client quotas cannot be compared: {exc}")
        try:
            missing = tuple(_missing(reads.scram_users(), writes.scram_users()))
        except BrokerError as exc:
            problems.append(f"SCRAM users cannot be compared: {exc}")
    return Along(
        schemas=schemas,
        quotas=quotas,
        missing_users=missing,
        notes=tuple(_notes(flow)),
        problems=tuple(problems),
    )


def _notes(flow: FlowConfig) -> Iterator[str]:
    exchanges = any(each.kind == "SchemaIds" for each in flow.transforms)
    if flow.schemas.enabled and flow.schemas.ids == "map" and not exchanges:
        yield _NO_IDS


def _missing(
    source: dict[str, tuple[str, ...]], target: dict[str, tuple[str, ...]]
) -> Iterator[str]:
    for user, mechanisms in sorted(source.items()):
        lacking = [each for each in mechanisms if each not in target.get(user, ())]
        if lacking:
            yield f"{user} ({', '.join(lacking)})"
