"""The audit as a Spark job: units in, results out, also as a DataFrame. Driver and executors.

Rows are made by `mapPartitions` and not by `mapInArrow`: that needs pandas on the driver, and a
result is a few numbers, so there is nothing for Arrow to gain. `run_audit` counts them without
making a DataFrame first: planning one takes a fresh JVM four seconds of CPU, as much as comparing
five million records. What each task found comes back through an accumulator as soon as the task
ends, so that progress can be shown and noted meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from py4j.protocol import Py4JError
from pyspark.accumulators import AccumulatorParam
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from heliograph.audit.compare import compare_unit
from heliograph.audit.findings import FindingKind, UnitOutcome, finding_row
from heliograph.audit.units import AuditUnit
from heliograph.broker.cluster import Cluster
from heliograph.config.clients import aiokafka_settings
from heliograph.errors import EngineError, MirrorError
from heliograph.model import FlowId

if TYPE_CHECKING:
    from heliograph.config.schema import ClientRole, ClusterConfig

_POLL_S: Final = 0.1
_TASKS_BESIDE: Final = 2
"""Beside a mirror: it must not feel the audit."""
_SCHEMA: Final = (
    "flow string, topic string, partition int, target_topic string, start_position long, "
    "end_position long, records long, bytes long, unopened_records long, expired_records long, "
    "repaired_records long, missing long, repeated long, changed long, swapped long, "
    "foreign long, findings string, problem string"
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOrder:
    """All that tasks need besides their units. Travels in the pickled function, over the
    authenticated gateway: it holds credentials, so it never becomes a row, a name or a setting."""

    id: str
    clusters: Mapping[FlowId, tuple[ClusterConfig, ClusterConfig]] = field(repr=False)
    """Source and target of each flow."""


def new_order(clusters: Mapping[FlowId, tuple[ClusterConfig, ClusterConfig]]) -> AuditOrder:
    return AuditOrder(id=uuid.uuid4().hex, clusters=clusters)


def audit_frame(session: SparkSession, order: AuditOrder, units: Sequence[AuditUnit]) -> DataFrame:
    """One row for each unit, compared when the frame is: for whoever works with the results."""
    return session.createDataFrame(_compared(session, order, units), _SCHEMA, verifySchema=False)


def _compared(
    session: SparkSession,
    order: AuditOrder,
    units: Sequence[AuditUnit],
    *,
    tasks_max: int | None = None,
    outcomes: Any = None,
) -> Any:
    """The rows, not compared yet; `outcomes` is an accumulator of lists."""
    rows = [pickle.dumps(unit) for unit in units]
    slices = max(1, len(rows) if tasks_max is None else min(tasks_max, len(rows)))
    return session.sparkContext.parallelize(rows, slices).mapPartitions(
        partial(_compare_rows, order, outcomes)
    )


def run_audit(
    session: SparkSession,
    order: AuditOrder,
    units: Sequence[AuditUnit],
    on_outcome: Callable[[UnitOutcome], None],
    *,
    tasks_max: int | None = None,
    is_wanted: Callable[[], bool] = lambda: True,
) -> None:
    """Compare all units; `on_outcome` hears of each when it is done, in the caller's thread.

    Raises `EngineError` when Spark cannot run the job. Interrupted, or wanted no more, it cancels
    what still runs.
    """
    context = session.sparkContext
    outcomes = context.accumulator([], _Outcomes())
    group = f"heliograph-audit-{order.id}"
    compared = _compared(session, order, units, tasks_max=tasks_max, outcomes=outcomes)
    job = _Job(partial(_finish, session, group, compared))
    heard = 0
    try:
        while True:
            is_over = job.wait(_POLL_S)
            for outcome in outcomes.value[heard:]:
                heard += 1
                on_outcome(outcome)
            if is_over:
                job.ensure_done()
                return
            if not is_wanted():
                return
    finally:
        if not job.wait(0):
            context.cancelJobGroup(group)


def audit_runner(
    session: SparkSession,
    clusters: Mapping[FlowId, tuple[ClusterConfig, ClusterConfig]],
    is_wanted: Callable[[], bool],
) -> Callable[[Sequence[AuditUnit], Callable[[UnitOutcome], None]], None]:
    """Audits in the session of a mirror that runs: few tasks, and none once it is to end."""
    order = new_order(clusters)

    def run(units: Sequence[AuditUnit], on_outcome: Callable[[UnitOutcome], None]) -> None:
        run_audit(session, order, units, on_outcome, tasks_max=_TASKS_BESIDE, is_wanted=is_wanted)

    return run


def _finish(session: SparkSession, group: str, compared: Any) -> None:
    session.sparkContext.setJobGroup(group, "heliograph audit", interruptOnCancel=True)
    compared.count()


class _Job:
    """Work on a thread of its own, so that the caller can look at what is done already."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def ensure_done(self) -> None:
        if self._error is not None:
            text = str(self._error).strip().splitlines()
            raise EngineError(f"the audit's job failed: {text[0] if text else 'no reason given'}")

    def _run(self) -> None:
        try:
            self._work()
        except (Py4JError, PySparkException, OSError, AttributeError) as exc:
            # AttributeError: a context stopped meanwhile has no JVM behind its attributes.
            self._error = exc


class _Outcomes(AccumulatorParam):  # type: ignore[misc]
    def zero(self, value: list[UnitOutcome]) -> list[UnitOutcome]:
        return []

    def addInPlace(  # noqa: N802 - the name is Spark's
        self, value1: list[UnitOutcome], value2: list[UnitOutcome]
    ) -> list[UnitOutcome]:
        value1 += value2
        return value1


def _compare_rows(
    order: AuditOrder, outcomes: Any, rows: Iterator[bytes]
) -> Iterator[tuple[Any, ...]]:
    """The Spark task."""
    workshop = _workshop(order)
    for row in rows:
        unit: AuditUnit = pickle.loads(row)
        outcome = workshop.compare(unit)
        if outcomes is not None:
            outcomes.add([outcome])
        yield _row(outcome)


class _Workshop:
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
                _cluster(source, "consumer"),
                _cluster(target, "producer"),
            )
        return self._clusters[flow]


def _cluster(config: ClusterConfig, role: ClientRole) -> Cluster:
    return Cluster(
        config.alias, config.bootstrap_servers, aiokafka_settings(config, role), needs="READ"
    )


_kept: list[_Workshop] = []


def _workshop(order: AuditOrder) -> _Workshop:
    """This process's; the one of an earlier audit is closed."""
    if _kept and _kept[0].id != order.id:
        _kept.pop().close()
    if not _kept:
        _kept.append(_Workshop(order))
    return _kept[0]


def _row(outcome: UnitOutcome) -> tuple[Any, ...]:
    unit, result = outcome.unit, outcome.result
    lane = unit.lane
    place = (
        str(lane.flow),
        lane.source.topic,
        lane.source.partition,
        unit.target.topic,
        unit.start_position,
        unit.end_position,
    )
    if result is None:
        return (*place, *(0,) * 10, "[]", outcome.problem)
    return (
        *place,
        result.records,
        result.bytes,
        result.unopened_records,
        result.expired_records,
        result.repaired_records,
        *(result.counts.get(kind, 0) for kind in FindingKind),
        json.dumps([finding_row(one) for one in result.findings]),
        "",
    )
