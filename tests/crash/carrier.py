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
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from heliograph import probe
from heliograph.broker import seed as seed_module
from heliograph.broker.cluster import Cluster
from heliograph.config.clients import aiokafka_settings
from heliograph.config.schema import ClusterConfig
from heliograph.config.transforms import TransformConfig
from heliograph.copy.flow import FetchLimits
from heliograph.copy.shuttle import Shuttle
from heliograph.ledger import segments
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
FOREIGN: Final = b"foreign"
"""Key and value of each record of the other writer."""
FETCH_BYTES: Final = 2048
FILLER_RECORDS: Final = 50
MERGE_ENTRIES_MIN: Final = 3
SEGMENT_RUNS: Final = 8
HEAD_INTERVAL_S: Final = 0.1
_DONE_S_MAX: Final = 60.0
_POLL_S: Final = 0.02
_MERGED_S: Final = 5.0


def carry_out(path: Path) -> None:
    """Ends this process; what it installs stays installed."""
    order = json.loads(path.read_text(encoding="utf-8"))
    seed_module.FILLER_RECORDS = FILLER_RECORDS  # type: ignore[misc]
    segments.MERGE_ENTRIES_MIN = MERGE_ENTRIES_MIN  # type: ignore[misc]
    segments.SEGMENT_RUNS = SEGMENT_RUNS  # type: ignore[misc]
    sys.exit(asyncio.run(_carry(order)))


async def _carry(order: dict[str, Any]) -> int:
    """Until every lane has caught up; 0 then, `EXIT_STALLED` where one waits for somebody."""
    flow = FlowId(source=ClusterAlias(order["source"]), target=ClusterAlias(order["target"]))
    configs = {
        alias: ClusterConfig(alias=alias, bootstrap_servers=tuple(order["servers"][alias]))
        for alias in (flow.source, flow.target)
    }
    lanes = await _lanes(order, flow, configs[flow.source])
    transforms = tuple(TransformConfig.model_validate(each) for each in order["transforms"])
    fetch_bytes = order["fetch_bytes"]
    fates = order["fates"]
    limits = {flow: FetchLimits(partition_bytes_max=fetch_bytes, transforms=transforms, **fates)}
    shuttle = Shuttle(configs, limits=limits, head_interval_s=HEAD_INTERVAL_S)
    watching: list[probe.OnStep] = []
    if order["foreign"]:
        watching.append(_foreign_writer(order, configs[flow.target], len(lanes)))
    if order["step"] is not None:
        strike = _striker(order["after"], signal.Signals(order["signal"]))
        watching.append(_watch(order["step"], shuttle, strike))
    probe.install(_all(watching))
    running = asyncio.create_task(shuttle.run())
    shuttle.add(lanes)
    code = await _until_done(shuttle, running)
    if order["step"] in (probe.RUNS_TO_MERGE, probe.RUNS_MERGED):
        # Runs are merged after the head that settles them, with the ticks that follow.
        await asyncio.sleep(_MERGED_S)
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


# -- the step at which to strike


def _striker(passes: int, number: signal.Signals) -> Callable[[], None]:
    left = passes

    def strike() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), number)

    return strike


def _watch(wanted: str, shuttle: Shuttle, strike: Callable[[], None]) -> probe.OnStep:
    def on_step(step: str, _: object) -> None:
        if step != wanted:
            return
        if step == probe.LEDGER_BATCH_TO_SEND:
            # Once it is sent: its writer waits for the answer by then.
            asyncio.get_running_loop().call_soon(strike)
        elif step != probe.HEADS_TO_WRITE or any(at.position for at in shuttle.progress()):
            strike()

    return on_step


def _foreign_writer(order: dict[str, Any], config: ClusterConfig, partitions: int) -> probe.OnStep:
    """Another writer of the target topic, a record in each partition behind every request, so that
    each batch but a lane's first surely has a record of somebody else in front of it."""
    producer = Producer({"bootstrap.servers": ",".join(config.bootstrap_servers), "linger.ms": 0})

    def on_step(step: str, _: object) -> None:
        if step == probe.BATCHES_SENT:
            for number in range(partitions):
                producer.produce(order["target_topic"], FOREIGN, FOREIGN, number)
            producer.flush()

    return on_step


def _all(watching: list[probe.OnStep]) -> probe.OnStep:
    def on_step(step: str, subject: object) -> None:
        for each in watching:
            each(step, subject)

    return on_step
