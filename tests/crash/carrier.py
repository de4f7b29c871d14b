"""A slot without Spark that kills or stops itself at a named step; run as a child by `scene`.

Everything but the signal is the real shuttle. Fetches, fillers and head intervals are small, so
that a few hundred records pass every step many times.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from heliograph.broker.cluster import Cluster
from heliograph.config.clients import aiokafka_settings
from heliograph.config.schema import ClusterConfig
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
from heliograph.shuttle import lane as lane_module
from heliograph.shuttle import resume as resume_module
from heliograph.shuttle import seed as seed_module
from heliograph.shuttle import shuttle as shuttle_module
from heliograph.shuttle.appending import AppendStream
from heliograph.shuttle.shuttle import Shuttle
from heliograph.shuttle.targets import TargetSide

EXIT_STALLED: Final = 3
FETCH_BYTES: Final = 2048
FILLER_RECORDS: Final = 50
HEAD_INTERVAL_S: Final = 0.1
_IN_FLIGHT_S: Final = 0.003
_DONE_S_MAX: Final = 60.0
_POLL_S: Final = 0.02

Strike = Callable[[], None]


def main() -> None:
    order = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    lane_module.FETCH_BYTES = order["fetch_bytes"]  # type: ignore[misc]
    seed_module.FILLER_RECORDS = FILLER_RECORDS  # type: ignore[misc]
    shuttle_module.HEAD_INTERVAL_S = HEAD_INTERVAL_S  # type: ignore[misc]
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


def _before_runs_are_written(strike: Strike) -> None:
    original = TargetSide.take

    def take(self: TargetSide, lane: Any, layout: Any) -> int:
        if layout.runs:
            strike()
        return original(self, lane, layout)

    TargetSide.take = take  # type: ignore[method-assign]


def _ledger_write_on_its_way(strike: Strike) -> None:
    original = LedgerStore._append

    async def append(self: LedgerStore, batch: bytes) -> None:
        sending = asyncio.create_task(original(self, batch))
        await asyncio.sleep(_IN_FLIGHT_S)
        strike()
        await sending

    LedgerStore._append = append  # type: ignore[method-assign]


def _runs_durable_batch_not_sent(strike: Strike) -> None:
    original = TargetSide.release

    def release(self: TargetSide, flow: FlowId) -> None:
        if self._gated[flow]:
            strike()
        original(self, flow)

    TargetSide.release = release  # type: ignore[method-assign]


def _batch_sent_not_answered(strike: Strike) -> None:
    original = AppendStream._send

    def send(self: AppendStream, connection: Any) -> None:
        before = len(self._sent_at_s)
        original(self, connection)
        if len(self._sent_at_s) > before:
            strike()

    AppendStream._send = send  # type: ignore[method-assign]


def _batch_answered_not_settled(strike: Strike) -> None:
    original = AppendStream._answered

    def answered(self: AppendStream, *args: Any) -> None:
        strike()
        original(self, *args)

    AppendStream._answered = answered  # type: ignore[method-assign]


def _batch_settled_head_not_written(strike: Strike) -> None:
    original = Shuttle._write_heads

    async def write_heads(self: Shuttle, lanes: Any, *, wait: bool) -> None:
        lanes = tuple(lanes)
        if any(lane.position > 0 for lane in lanes):
            strike()
        await original(self, lanes, wait=wait)

    Shuttle._write_heads = write_heads  # type: ignore[method-assign]


def _about_to_be_born(strike: Strike) -> None:
    _wrap_birth(strike, lambda: None)


def _born_nothing_appended(strike: Strike) -> None:
    _wrap_birth(lambda: None, strike)


def _wrap_birth(before: Strike, after: Strike) -> None:
    original = resume_module._bear

    async def bear(*args: Any) -> None:
        before()
        await original(*args)
        after()

    resume_module._bear = bear


def _filler_appended(strike: Strike) -> None:
    original: Callable[..., Awaitable[int]] = seed_module._append

    async def append(*args: Any, **kwargs: Any) -> int:
        appended = await original(*args, **kwargs)
        strike()
        return appended

    seed_module._append = append  # type: ignore[assignment]


def _seeded_not_cleared(strike: Strike) -> None:
    original = seed_module._delete_before

    async def delete_before(cluster: Any, partition: Any, offset: int) -> None:
        if offset > 0:
            strike()
        await original(cluster, partition, offset)

    seed_module._delete_before = delete_before


def _cleared_not_born(strike: Strike) -> None:
    original = resume_module.seed

    async def seed(*args: Any, **kwargs: Any) -> int:
        end = await original(*args, **kwargs)
        strike()
        return end

    resume_module.seed = seed  # type: ignore[attr-defined]


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


if __name__ == "__main__":
    main()
