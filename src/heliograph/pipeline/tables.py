"""What Heliograph knows, as DataFrames: `heliograph.tables(spark, "mm2.properties").lanes()`. Runs
on the driver.

Each call reads the clusters and ledgers anew, as `heliograph status` does, and needs no driver of a
mirror. The rows are in the session's memory: they are about lanes, and not about records.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from heliograph.audit.plan import last_audit
from heliograph.config.load import load_config
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.inspect.flow_status import MirrorStatus
from heliograph.inspect.status import StatusReader
from heliograph.ledger.locations import LaneLocation
from heliograph.ledger.view import LedgerView
from heliograph.model import FlowId

T = TypeVar("T")
Row = tuple[Any, ...]

_LANE: Final = "flow string, topic string, partition int"
_LANES: Final = (
    f"{_LANE}, target_topic string, target_partition int, state string, detail string, "
    "position bigint, source_next_offset bigint, source_end_offset bigint, "
    "target_next_offset bigint, lost_records bigint, foreign_records bigint, offsets string, "
    "noted_at timestamp"
)
_LAG: Final = f"{_LANE}, lag_records bigint, lag_seconds double, at timestamp"
_MAP: Final = (
    f"{_LANE}, target_topic string, target_partition int, position bigint, source_offset bigint, "
    "target_offset bigint, records bigint"
)
_LEDGER: Final = f"{_LANE}, kind string, position bigint, at timestamp, entry string"
_LOSSES: Final = (
    f"{_LANE}, position bigint, start_offset bigint, end_offset bigint, reason string, at timestamp"
)
_AUDIT: Final = "flow string, at timestamp, records bigint, kind string, found_records bigint"


def tables(spark: Any, config: MirrorConfig | Path | str) -> Tables:
    """`config` is a file of Heliograph or MirrorMaker 2, or what was read of it."""
    if not isinstance(config, MirrorConfig):
        config = load_config(Path(config))
    return Tables(spark, config)


class Tables:
    """One method for each table; each gives a DataFrame of how it is at the moment of the call.

    Raises `MirrorError` where a target does not answer.
    """

    def __init__(self, spark: Any, config: MirrorConfig) -> None:
        self._spark, self._config = spark, config

    def lanes(self) -> Any:
        """Each lane: where it is on both sides, its state, what it lost."""
        return self._frame(_LANES, _lanes(_on_a_loop(self._status)))

    def lag(self) -> Any:
        """How far each lane is behind its source."""
        return self._frame(_LAG, _lag(_on_a_loop(self._status)))

    def offset_map(self) -> Any:
        """Stretches of offsets that go together: `records` from `source_offset` on are at
        `target_offset` on."""
        return self._of_flows(_MAP, lambda flow, _, lanes: _map(flow, lanes))

    def ledger(self) -> Any:
        """What the ledgers say, entry by entry; runs are in `offset_map`."""
        return self._of_flows(_LEDGER, lambda flow, view, _: _entries(flow, view))

    def losses(self) -> Any:
        """Offsets that a source deleted before they were mirrored."""
        return self._of_flows(_LOSSES, lambda flow, view, _: _losses(flow, view))

    def audit(self) -> Any:
        """What the last audit of each flow found; a row of no kind where it found nothing."""
        return self._of_flows(_AUDIT, lambda flow, view, _: _audit(flow, view))

    def _of_flows(
        self,
        schema: str,
        rows: Callable[[FlowId, LedgerView, list[LaneLocation]], Iterable[Row]],
    ) -> Any:
        async def read() -> list[Row]:
            async def of(reader: StatusReader, flow: FlowConfig) -> list[Row]:
                lanes = await reader.locations(flow)
                return list(rows(flow.id, reader.ledger(flow.id).view, lanes))

            return await self._reading(
                lambda reader: _joined(of(reader, flow) for flow in self._config.flows)
            )

        return self._frame(schema, _on_a_loop(read))

    async def _status(self) -> MirrorStatus:
        return await self._reading(lambda reader: reader.read())

    async def _reading(self, work: Callable[[StatusReader], Awaitable[T]]) -> T:
        reader = StatusReader(self._config)
        try:
            return await work(reader)
        finally:
            await reader.close()

    def _frame(self, schema: str, rows: Iterable[Row]) -> Any:
        return self._spark.createDataFrame(list(rows), schema)


async def _joined(parts: Iterable[Coroutine[Any, Any, list[Row]]]) -> list[Row]:
    return [row for part in await asyncio.gather(*parts) for row in part]


def _on_a_loop(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """On a thread of its own: a notebook's has a loop that runs already."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(work())).result()


def _lanes(status: MirrorStatus) -> Iterator[Row]:
    for flow in status.flows:
        for at in flow.lanes:
            source = at.lane.source
            yield (
                str(flow.flow),
                source.topic,
                source.partition,
                at.target.topic,
                at.target.partition,
                at.state,
                at.detail,
                at.position,
                at.source_next_offset,
                at.source_end_offset,
                at.target_next_offset,
                at.lost_records,
                at.foreign_records,
                at.offsets,
                _time(at.noted_ms),
            )


def _lag(status: MirrorStatus) -> Iterator[Row]:
    for flow in status.flows:
        for at in flow.lanes:
            where = str(flow.flow), at.lane.source.topic, at.lane.source.partition
            yield (*where, at.lag_records, at.lag_s, _time(status.at_ms))


def _map(flow: FlowId, lanes: Iterable[LaneLocation]) -> Iterator[Row]:
    for lane in lanes:
        source, target, runs = lane.lane.source, lane.target, list(lane.record.runs)
        ends = [run.position for run in runs[1:]] + [lane.position]
        for run, end in zip(runs, ends, strict=True):
            yield (
                str(flow),
                source.topic,
                source.partition,
                target.topic,
                target.partition,
                run.position,
                run.source_offset,
                run.target_offset,
                max(0, end - run.position),
            )


def _entries(flow: FlowId, view: LedgerView) -> Iterator[Row]:
    none: tuple[None, None] = (None, None)
    if view.flow is not None:
        yield (str(flow), *none, "flow", None, _time(view.flow.created_ms), _json(view.flow))
    if view.holder is not None:
        yield (str(flow), *none, "lease", None, _time(view.holder.at_ms), _json(view.holder))
    for lane in view.lanes:
        record = view.lane(lane.topic, lane.partition)
        if record is None:
            continue
        kinds: dict[str, tuple[Any, ...]] = {
            "head": () if record.head is None else (record.head,),
            "start": record.starts,
            "loss": record.losses,
        }
        for kind, entry in ((kind, entry) for kind, found in kinds.items() for entry in found):
            at = _time(entry.at_ms)
            yield (str(flow), *_at(entry), kind, entry.position, at, _json(entry))
    for acl in sorted(map(str, view.acls)):
        yield (str(flow), *none, "acl", None, None, json.dumps({"acl": acl}))
    for subject, text in sorted(view.memos.items()):
        entry = json.dumps({"subject": subject, "text": text})
        yield (str(flow), *none, "memo", None, None, entry)


def _losses(flow: FlowId, view: LedgerView) -> Iterator[Row]:
    for loss in view.losses:
        lost = loss.lost
        yield (
            *(str(flow), *_at(loss), loss.position),
            *(lost.start, lost.end, loss.reason.value, _time(loss.at_ms)),
        )


def _audit(flow: FlowId, view: LedgerView) -> Iterator[Row]:
    note = last_audit(view)
    if note is None:
        return
    findings: Mapping[Any, int] = note.findings
    for kind, records in findings.items() or ((None, 0),):
        name = None if kind is None else kind.value
        yield (str(flow), _time(note.at_ms), note.records, name, records)


def _at(entry: Any) -> tuple[str, int]:
    return entry.topic, entry.partition


def _json(entry: Any) -> str:
    return json.dumps(asdict(entry), default=str)


def _time(at_ms: int | None) -> datetime | None:
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC)
