"""Run the pipelines of all flows beside the lanes. Runs on the driver's loop.

A pipeline runs while this driver leads its flow and nobody paused it: so a standby takes over, from
the checkpoint and the ledger. A query that ends is started again after a pause that grows; until
it works its reason is shown. Queries block on threads of their own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from heliograph.broker.blocking import blocking, first_of
from heliograph.clock import now_ms
from heliograph.config.schema import FlowConfig, MirrorConfig, PipelineConfig
from heliograph.decisions.orders import FlowOrders
from heliograph.decisions.words import decision_words
from heliograph.driver.activity import FlowActivity
from heliograph.errors import MirrorError
from heliograph.ledger.access import LedgerAccess
from heliograph.ledger.leadership import Leaderships
from heliograph.ledger.pipeline_note import PipelineFigures, PipelineState, pipeline_note
from heliograph.model import FlowId, TopicName, TopicPartition

log = logging.getLogger("heliograph")

_LOOK_S: Final = 1.0
_NOTE_S: Final = 10.0
_RETRY_S: Final = 2.0
_RETRY_S_MAX: Final = 60.0
_STOP_S_MAX: Final = 20.0

Key = tuple[FlowId, str]


class Query(Protocol):
    """As `heliograph.pipeline.query.PipelineQuery`."""

    def look(self) -> PipelineFigures: ...
    def stop(self) -> None: ...


Begin = Callable[[MirrorConfig, FlowConfig, PipelineConfig, bool], Query]
"""Starts a query; blocks, raises `MirrorError`."""


def spark_queries(session: Callable[[], Any]) -> Begin:
    """Queries of the mirror's own Spark; Spark SQL is loaded by the first of them."""

    def begin(
        config: MirrorConfig, flow: FlowConfig, pipeline: PipelineConfig, once: bool
    ) -> Query:
        from heliograph.pipeline.query import PipelineQuery, order_of

        return PipelineQuery(session(), order_of(config, flow, pipeline, once=once))

    return begin


@dataclass(slots=True)
class _Run:
    """One pipeline, as this driver knows it."""

    flow: FlowConfig
    pipeline: PipelineConfig
    settings: object
    """All that it was started with: another one is another run."""
    figures: PipelineFigures
    task: asyncio.Task[None] | None = None
    before: PipelineFigures | None = None
    """What the queries before the present one have done."""
    noted: PipelineFigures | None = None
    failures: int = 0
    """Of queries in a row that wrote no batch."""
    has_ended: bool = False


class Pipelines:
    """All pipelines of a run. Its state is on the loop."""

    def __init__(
        self,
        config: MirrorConfig,
        begin: Begin,
        leaderships: Leaderships,
        activity: FlowActivity,
        decided: Callable[[FlowId], FlowOrders],
        ledgers: LedgerAccess,
        *,
        once: bool = False,
    ) -> None:
        self._config, self._begin, self._once = config, begin, once
        self._leaderships, self._activity = leaderships, activity
        self._decided, self._ledgers = decided, ledgers
        self._runs: dict[Key, _Run] = {}

    @property
    def figures(self) -> Mapping[Key, PipelineFigures]:
        """Of pipelines of flows that this driver leads."""
        return {key: run.figures for key, run in self._runs.items()}

    @property
    def problems(self) -> Mapping[FlowId, str]:
        """What does not work at this moment, a sentence per flow."""
        found: dict[FlowId, list[str]] = {}
        for (flow, name), run in self._runs.items():
            if run.figures.state is PipelineState.STALLED:
                found.setdefault(flow, []).append(f"pipeline {name}: {run.figures.reason}")
        return {flow: "; ".join(sentences) for flow, sentences in found.items()}

    def use(self, config: MirrorConfig) -> None:
        """Run the pipelines of this configuration, from the next look on."""
        self._config = config

    async def run(self) -> None:
        """Until it is cancelled; then `settle`."""
        while True:
            await self._look()
            await first_of(self._leaderships.changed, timeout_s=_LOOK_S)

    async def settle(self) -> None:
        """Stop all queries, and wait for that within reason."""
        await self._end(list(self._runs))
        for run in self._runs.values():
            if run.figures.state is not PipelineState.STALLED:
                self._show(run, state=PipelineState.ENDED, reason="")
            await self._note(run, now=True)

    @property
    def have_ended(self) -> bool:
        """Where all that is there now is the end: whether it is reached, by who is not paused."""
        return all(
            (run := self._runs.get(key)) is not None
            and (run.has_ended or run.figures.state is PipelineState.PAUSED)
            for key in self._wanted()
        )

    def _wanted(self) -> dict[Key, tuple[FlowConfig, PipelineConfig, object]]:
        return {
            (flow.id, pipeline.name): (
                flow,
                pipeline,
                (pipeline, self._config.source_of(flow.id), self._config.target_of(flow.id)),
            )
            for flow in self._config.flows
            for pipeline in flow.pipelines
            if pipeline.enabled and self._leaderships.leads(flow.id)
        }

    async def _look(self) -> None:
        wanted = self._wanted()
        gone = [
            key
            for key, run in self._runs.items()
            if key not in wanted or wanted[key][2] != run.settings
        ]
        await self._end(gone)
        for key in gone:
            del self._runs[key]
        for key, (flow, pipeline, settings) in wanted.items():
            if key not in self._runs:
                self._runs[key] = _Run(flow, pipeline, settings, _starting(pipeline))
            run = self._runs[key]
            why = self._why_paused(run)
            if why is not None and run.task is not None:
                await self._end([key])
            if why is not None:
                self._show(run, state=PipelineState.PAUSED, reason=why)
            elif run.task is None:
                run.task = asyncio.create_task(self._keep(run), name=f"{key[0]} pipeline {key[1]}")
            await self._note(run)

    def _why_paused(self, run: _Run) -> str | None:
        name = TopicName(run.pipeline.as_topic)
        orders = self._decided(run.flow.id)
        found = orders.lane(TopicPartition(topic=name, partition=0))
        decision = orders.stopped or found.paused
        return None if decision is None else decision_words(decision)

    async def _end(self, keys: Collection[Key]) -> None:
        """Their tasks stop their queries on the way out."""
        tasks = {run.task for key in keys if (run := self._runs[key]).task is not None}
        for key in keys:
            self._runs[key].task = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_STOP_S_MAX)

    async def _keep(self, run: _Run) -> None:
        name = f"{run.flow.id}: pipeline {run.pipeline.name}"
        while True:
            self._show(run, state=PipelineState.STARTING, reason=run.figures.reason)
            problem = await self._run_once(run, name)
            run.failures += 1
            pause_s = min(_RETRY_S * 2 ** (run.failures - 1), _RETRY_S_MAX)
            if problem and run.figures.reason != problem:
                again = "" if self._once else f"; started again in {pause_s:.0f} s"
                log.error("%s: %s%s", name, problem, again)
            if problem:
                self._show(run, state=PipelineState.STALLED, reason=problem)
            if self._once:
                run.has_ended = True
                return
            await asyncio.sleep(pause_s)
            run.figures = replace(run.figures, restarts=run.figures.restarts + 1)
            run.before = run.figures

    async def _run_once(self, run: _Run, name: str) -> str:
        """Until the query ends; why it did."""
        query: Query | None = None
        with self._activity.job(run.flow.id):
            try:
                # Not left alone when this task is cancelled: a query nobody knows would go on.
                starting = asyncio.ensure_future(
                    blocking(self._begin, self._config, run.flow, run.pipeline, self._once)
                )
                try:
                    query = await asyncio.shield(starting)
                except asyncio.CancelledError:
                    with suppress(MirrorError):
                        query = await starting
                    raise
                log.info("%s: begins", name)
                while True:
                    figures = await blocking(query.look)
                    self._take(run, figures)
                    if figures.state is PipelineState.ENDED:
                        return ""
                    await asyncio.sleep(_LOOK_S)
            except MirrorError as exc:
                return str(exc)
            except Exception as exc:  # our own bug must not end what others copy
                log.exception("unexpected error in %s", name)
                return f"unexpected error: {type(exc).__name__}"
            finally:
                if query is not None:
                    await asyncio.shield(asyncio.ensure_future(blocking(query.stop)))

    def _take(self, run: _Run, figures: PipelineFigures) -> None:
        if figures.batch is not None:
            run.failures = 0
        before = run.before
        if before is not None:
            figures = replace(
                figures,
                records_read=before.records_read + figures.records_read,
                rows_written=before.rows_written + figures.rows_written,
                rows_left_out=before.rows_left_out + figures.rows_left_out,
                restarts=before.restarts,
            )
        if run.failures and run.figures.reason:
            # It runs, and has shown nothing yet: what ended it last is still what is known.
            figures = replace(figures, reason=run.figures.reason)
        run.figures = figures

    def _show(self, run: _Run, *, state: PipelineState, reason: str) -> None:
        run.figures = replace(run.figures, state=state, reason=reason, at_ms=now_ms())

    async def _note(self, run: _Run, *, now: bool = False) -> None:
        """A state at once, figures now and then."""
        at, noted = run.figures, run.noted
        is_news = noted is None or (at.state, at.reason) != (noted.state, noted.reason)
        is_due = noted is not None and at.at_ms - noted.at_ms >= _NOTE_S * 1000
        moved = noted is None or replace(at, at_ms=0) != replace(noted, at_ms=0)
        if not (is_news or now or (is_due and moved)):
            return
        with suppress(MirrorError):  # the lease's task says so; the next look tries again
            await self._ledgers.note(run.flow.id, [pipeline_note(at)])
            run.noted = at


def _starting(pipeline: PipelineConfig) -> PipelineFigures:
    return PipelineFigures(name=pipeline.name, state=PipelineState.STARTING, at_ms=now_ms())
