"""A slot without Spark that kills or stops itself at a named step; run by `children`.

Everything but the signal is the real shuttle. Fetches, fillers and head intervals are small, so
that a few hundred records pass every step many times.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Final

from heliograph.broker import seed as seed_module
from heliograph.broker.cluster import Cluster
from heliograph.broker.connection import Connection
from heliograph.config.clients import aiokafka_settings
from heliograph.config.schema import ClusterConfig
from heliograph.copy import resume as resume_module
from heliograph.copy import shuttle as shuttle_module
from heliograph.copy.appending import AppendStream
from heliograph.copy.chunk import PreparedChunk
from heliograph.copy.lane import CarriedLane
from heliograph.copy.shuttle import Shuttle
from heliograph.copy.targets import TargetSide
from heliograph.ledger.store import LedgerStore
from heliograph.model import (
    ClusterAlias,
    FlowId,
    Idle,
    Lane,
    LaneId,
    Offsets,
    Stalled,
    TopicName,
    TopicPartition,
)

EXIT_STALLED: Final = 3
FETCH_BYTES: Final = 2048
FILLER_RECORDS: Final = 50
HEAD_INTERVAL_S: Final = 0.1
_IN_FLIGHT_S: Final = 0.003
_DONE_S_MAX: Final = 60.0
_POLL_S: Final = 0.02

Strike = Callable[[], None]


def carry_out(path: Path) -> None:
    """Ends this process; what it wraps stays wrapped."""
    order = json.loads(path.read_text(encoding="utf-8"))
    _small_fetches(order["fetch_bytes"])
    _wrap(seed_module, "FILLER_RECORDS", lambda _: FILLER_RECORDS)
    _wrap(shuttle_module, "HEAD_INTERVAL_S", lambda _: HEAD_INTERVAL_S)
    if order["step"] is not None:
        STEPS[order["step"]](_striker(order["after"], signal.Signals(order["signal"])))
    sys.exit(asyncio.run(_carry(order)))


def _striker(passes: int, number: signal.Signals) -> Strike:
    left = passes

    def strike() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), number)

    return strike


async def _carry(order: dict[str, Any]) -> int:
    """Until every lane has caught up; 0 then, `EXIT_STALLED` where one waits for somebody."""
    flow = FlowId(source=ClusterAlias(order["source"]), target=ClusterAlias(order["target"]))
    configs = {
        alias: ClusterConfig(alias=alias, bootstrap_servers=tuple(order["servers"][alias]))
        for alias in (flow.source, flow.target)
    }
    lanes = await _lanes(order, flow, configs[flow.source])
    shuttle = Shuttle(configs)
    running = asyncio.create_task(shuttle.run())
    shuttle.add(lanes)
    code = await _until_done(shuttle, running)
    await shuttle.drain()
    await shuttle.close()
    await running
    return code


async def _lanes(order: dict[str, Any], flow: FlowId, config: ClusterConfig) -> list[Lane]:
    source = Cluster(config.alias, config.bootstrap_servers, aiokafka_settings(config))
    name = TopicName(order["topic"])
    await source.refresh([name])
    topic = source.topic(name)
    source.close()
    assert topic is not None
    return [
        Lane(
            id=LaneId(flow=flow, source=TopicPartition(topic=name, partition=number)),
            target=TopicPartition(topic=TopicName(order["target_topic"]), partition=number),
            source_topic_id=topic.id,
            offsets=Offsets(order["offsets"]),
        )
        for number in range(topic.partition_count)
    ]


async def _until_done(shuttle: Shuttle, running: asyncio.Task[None]) -> int:
    deadline_s = asyncio.get_running_loop().time() + _DONE_S_MAX
    while asyncio.get_running_loop().time() < deadline_s:
        await asyncio.sleep(_POLL_S)
        if running.done():
            await running
        states = [at.state for at in shuttle.progress()]
        if all(isinstance(state, Idle) for state in states):
            return 0
        if any(isinstance(state, Stalled) and not state.retrying for state in states):
            sys.stderr.write(f"{states}\n")
            return EXIT_STALLED
    raise TimeoutError(f"not caught up after {_DONE_S_MAX:.0f} s: {shuttle.progress()}")


# -- steps: each wraps one function of the shuttle


def _wrap(owner: object, name: str, make: Callable[[Any], Any]) -> None:
    """Put what `make` makes of the original in its place."""
    setattr(owner, name, make(getattr(owner, name)))


def _small_fetches(fetch_bytes: int) -> None:
    def make(original: Any) -> Callable[..., None]:
        def init(lane: CarriedLane, *args: Any) -> None:
            original(lane, *args)
            lane.fetch_bytes = fetch_bytes

        return init

    _wrap(CarriedLane, "__init__", make)


def _before_runs_are_written(strike: Strike) -> None:
    def make(original: Any) -> Callable[..., int]:
        def take(side: TargetSide, lane: CarriedLane, layout: PreparedChunk) -> int:
            if layout.runs:
                strike()
            return int(original(side, lane, layout))

        return take

    _wrap(TargetSide, "take", make)


def _ledger_write_on_its_way(strike: Strike) -> None:
    def make(original: Any) -> Callable[..., Awaitable[None]]:
        async def append(*args: Any) -> None:
            sending = asyncio.create_task(original(*args))
            await asyncio.sleep(_IN_FLIGHT_S)
            strike()
            await sending

        return append

    _wrap(LedgerStore, "_append", make)


def _runs_durable_batch_not_sent(strike: Strike) -> None:
    def make(original: Any) -> Callable[..., None]:
        def release(side: TargetSide, flow: FlowId) -> None:
            if side._gated[flow]:
                strike()
            original(side, flow)

        return release

    _wrap(TargetSide, "release", make)


def _batch_sent_not_answered(strike: Strike) -> None:
    def make(original: Any) -> Callable[..., None]:
        def send(stream: AppendStream, connection: Connection) -> None:
            before = len(stream._sent_at_s)
            original(stream, connection)
            if len(stream._sent_at_s) > before:
                strike()

        return send

    _wrap(AppendStream, "_send", make)


def _batch_answered_not_settled(strike: Strike) -> None:
    _wrap(AppendStream, "_answered", _striking_before(strike))


def _striking_before(strike: Strike) -> Callable[[Any], Callable[..., Any]]:
    def make(original: Any) -> Callable[..., Any]:
        def struck(*args: Any, **kwargs: Any) -> Any:
            strike()
            return original(*args, **kwargs)

        return struck

    return make


def _striking_after(strike: Strike) -> Callable[[Any], Callable[..., Any]]:
    def make(original: Any) -> Callable[..., Awaitable[Any]]:
        async def struck(*args: Any, **kwargs: Any) -> Any:
            answer = await original(*args, **kwargs)
            strike()
            return answer

        return struck

    return make


def _batch_settled_head_not_written(strike: Strike) -> None:
    def make(original: Any) -> Callable[..., Awaitable[None]]:
        async def write_heads(shuttle: Shuttle, lanes: Iterable[CarriedLane], **kw: Any) -> None:
            lanes = tuple(lanes)
            if any(lane.position > 0 for lane in lanes):
                strike()
            await original(shuttle, lanes, **kw)

        return write_heads

    _wrap(Shuttle, "_write_heads", make)


def _about_to_be_born(strike: Strike) -> None:
    _wrap(resume_module, "_bear", _striking_before(strike))


def _born_nothing_appended(strike: Strike) -> None:
    _wrap(resume_module, "_bear", _striking_after(strike))


def _filler_appended(strike: Strike) -> None:
    _wrap(seed_module, "_append", _striking_after(strike))


def _seeded_not_cleared(strike: Strike) -> None:
    def make(original: Any) -> Callable[..., Awaitable[None]]:
        async def delete_before(cluster: Cluster, partition: TopicPartition, offset: int) -> None:
            if offset > 0:
                strike()
            await original(cluster, partition, offset)

        return delete_before

    _wrap(seed_module, "_delete_before", make)


def _cleared_not_born(strike: Strike) -> None:
    _wrap(resume_module, "seed", _striking_after(strike))


STEPS: Final[dict[str, Callable[[Strike], None]]] = {
    "about to be born": _about_to_be_born,
    "born, nothing appended": _born_nothing_appended,
    "before runs are written": _before_runs_are_written,
    "ledger write on its way": _ledger_write_on_its_way,
    "runs durable, batch not sent": _runs_durable_batch_not_sent,
    "batch sent, not answered": _batch_sent_not_answered,
    "batch answered, not settled": _batch_answered_not_settled,
    "batch settled, head not written": _batch_settled_head_not_written,
    "filler appended": _filler_appended,
    "seeded, not cleared": _seeded_not_cleared,
    "cleared, not born": _cleared_not_born,
}
