"""The audit as a Spark job: units in, outcomes out. Driver and executors."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from heliograph.audit.compare import compare_unit
from heliograph.audit.findings import UnitOutcome
from heliograph.audit.units import AuditUnit
from heliograph.broker.cluster import Cluster, open_cluster
from heliograph.engine.unit_job import run_units
from heliograph.errors import MirrorError
from heliograph.model import FlowId

if TYPE_CHECKING:
    from heliograph.config.schema import ClusterConfig

_TASKS_BESIDE: Final = 2
"""Beside a mirror: it must not feel the audit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOrder:
    """All that tasks need besides their units; holds credentials."""

    id: str
    clusters: Mapping[FlowId, tuple[ClusterConfig, ClusterConfig]] = field(repr=False)
    """Source and target of each flow."""


def new_order(clusters: Mapping[FlowId, tuple[ClusterConfig, ClusterConfig]]) -> AuditOrder:
    return AuditOrder(id=uuid.uuid4().hex, clusters=clusters)


def run_audit(
    session: Any,
    order: AuditOrder,
    units: Sequence[AuditUnit],
    on_outcome: Callable[[UnitOutcome], None],
    *,
    tasks_max: int | None = None,
    is_wanted: Callable[[], bool] = lambda: True,
) -> None:
    """Compare all units; `on_outcome` hears of each when it is done, in the caller's thread.

    `session` is a SparkContext. Raises `EngineError` when Spark cannot run the job.
    """
    run_units(
        session,
        f"heliograph-audit-{order.id}",
        units,
        partial(_compare, order),
        on_outcome,
        tasks_max=tasks_max,
        is_wanted=is_wanted,
    )


def audit_runner(
    session: Callable[[], Any],
    clusters: Mapping[FlowId, tuple[ClusterConfig, ClusterConfig]],
    is_wanted: Callable[[], bool],
) -> Callable[[Sequence[AuditUnit], Callable[[UnitOutcome], None]], None]:
    """Audits in the session a running mirror has: few tasks, and none once it is to end."""
    order = new_order(clusters)

    def run(units: Sequence[AuditUnit], on_outcome: Callable[[UnitOutcome], None]) -> None:
        run_audit(session(), order, units, on_outcome, tasks_max=_TASKS_BESIDE, is_wanted=is_wanted)

    return run


def _compare(order: AuditOrder, unit: AuditUnit) -> UnitOutcome:
    """Runs in the Spark task."""
    return _connections(order).compare(unit)


class _WorkerConnections:
    """Connections of one worker process, kept from task to task."""

    def __init__(self, order: AuditOrder) -> None:
        self.id = order.id
        self._order = order
        self._loop = asyncio.new_event_loop()
        self._clusters: dict[FlowId, tuple[Cluster, Cluster]] = {}

    def compare(self, unit: AuditUnit) -> UnitOutcome:
        """What went wrong is in the outcome: raised, it would have Spark try for ever."""
        try:
            result = self._loop.run_until_complete(
                compare_unit(*self._clusters_of(unit.lane.flow), unit)
            )
        except MirrorError as exc:
            return UnitOutcome(unit=unit, result=None, problem=str(exc))
        return UnitOutcome(unit=unit, result=result)

    def close(self) -> None:
        async def end() -> None:
            for pair in self._clusters.values():
                for cluster in pair:
                    cluster.close()

        self._loop.run_until_complete(end())
        self._loop.close()

    def _clusters_of(self, flow: FlowId) -> tuple[Cluster, Cluster]:
        if flow not in self._clusters:
            source, target = self._order.clusters[flow]
            # As whoever mirrors the flow reaches them: auditing needs no more than mirroring.
            self._clusters[flow] = (
                open_cluster(source, "consumer"),
                open_cluster(target, "producer", only_reads=True),
            )
        return self._clusters[flow]


_kept: list[_WorkerConnections] = []


def _connections(order: AuditOrder) -> _WorkerConnections:
    """This process's; those of an earlier audit are closed."""
    if _kept and _kept[0].id != order.id:
        _kept.pop().close()
    if not _kept:
        _kept.append(_WorkerConnections(order))
    return _kept[0]
