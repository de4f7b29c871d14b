"""Real `heliograph run`s share a file's flows; one follows another that was stopped or killed, and
what was decided a moment before."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from typing import Final

from heliograph.config.load import load_config
from heliograph.inspect.flow_status import FlowStatus
from heliograph.inspect.status import StatusReader
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.cluster.test_cli import heliograph
from tests.kit.clusters import TopicNames
from tests.kit.inside import carry
from tests.kit.mirror import lasting_topic, route, write_config
from tests.kit.records import numbered, produce
from tests.kit.runs import START_S_MAX, WITHOUT_SPARK, MirrorRun, mirror_runs
from tests.kit.topics import wait_until

# As on another machine: nothing tells the driver that the other's process is gone.
_ELSEWHERE: Final = (
    "-c",
    "from heliograph import processes; processes.machine_id = lambda: 'elsewhere'; "
    + WITHOUT_SPARK[1],
)
_FIRST, _MORE, _LOAD = 200, 100, 20_000
_KILLED_S_MAX: Final = 20.0
"""Six or seven seconds were measured, of which the lease is most; a busy machine adds its own."""
_STOPPED_S_MAX: Final = 10.0
"""From SIGTERM to the other's lead, the drain included: 0.7 s were measured."""
_END_S_MAX: Final = 10.0
_PATIENCE_S: Final = 60.0
"""So that one that is late is told by how much."""


def test_drivers_share_flows_and_follow_each_other_when_stopped_or_killed(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = lasting_topic(pair["A"], topic("standby"))
    number = name.rpartition("-")[2]
    source, target = f"stA{number}", f"stB{number}"
    there, back = f"{source}->{target}", f"{target}->{source}"
    file = write_config(
        tmp_path / "mm2.properties",
        {source: pair["A"], target: pair["B"]},
        {there: {"topics": name}, back: {"topics": "none-of-these"}},
    )
    way = route(file, (source, pair["A"]), (target, pair["B"]))
    produce(pair["A"], name, numbered(_FIRST))
    narrow = ("--slots", "1")
    with mirror_runs() as runs:
        first = MirrorRun(
            file, tmp_path / "first.log", *narrow, "--clusters", target, program=WITHOUT_SPARK
        )
        runs.append(first)
        way.await_records(name, _FIRST, timeout_s=120)
        second = MirrorRun(file, tmp_path / "second.log", *narrow, program=_ELSEWHERE)
        runs.append(second)
        await_standby(file, there, second)
        second.await_running()
        shared = statuses(file)

        stopped_s = time.monotonic()
        first.send_signal(signal.SIGTERM)
        await_leader(file, there, second, _STOPPED_S_MAX)
        followed_s = time.monotonic() - stopped_s
        stopped_code = first.wait()
        produce(pair["A"], name, numbered(_MORE, start=_FIRST))
        way.await_records(name, _FIRST + _MORE)

        third = MirrorRun(
            file, tmp_path / "third.log", *narrow, "--flow", there, program=WITHOUT_SPARK
        )
        runs.append(third)
        await_standby(file, there, third)
        third.await_running()
        decided = heliograph("pause", file, "--flow", there, "--topic", name, "--why", "a test")
        killed_s = time.monotonic()
        second.kill()
        await_leader(file, there, third, _KILLED_S_MAX)
        led_s = time.monotonic() - killed_s
        left = statuses(file)
        third.wait_for_words("decided by")
        produce(pair["A"], name, numbered(_MORE, start=_FIRST + _MORE))
        wait_until(
            lambda: {lane.state for lane in statuses(file)[there].lanes} == {"paused"},
            "a paused lane of the one that took over",
            timeout_s=20,
        )
        held = way.appended(name)
        resumed = heliograph("resume", file, "--flow", there, "--topic", name)
        way.await_records(name, _FIRST + 2 * _MORE)

        produce(pair["A"], name, numbered(_LOAD, start=_FIRST + 2 * _MORE))
        third.send_signal(signal.SIGTERM)
        third.wait_for_words("press Ctrl-C again")
        signalled_s = time.monotonic()
        code = third.stop(signal.SIGTERM)
        ended_s = time.monotonic() - signalled_s

    carry(file)

    assert leader(shared[there]) == first.pid
    assert leader(shared[back]) == second.pid
    assert [each.pid for each in shared[there].standbys] == [second.pid]
    assert followed_s < _STOPPED_S_MAX
    assert stopped_code == 0, first.last_words
    assert led_s < _KILLED_S_MAX
    assert leader(left[there]) == third.pid
    assert (decided.code, resumed.code) == (0, 0), decided.err + resumed.err
    assert held == _FIRST + _MORE
    assert back not in third.said
    # Where all had settled before the second signal came, the first one ended it.
    assert code in (0, 128 + signal.SIGTERM), third.last_words
    assert ended_s < _END_S_MAX
    assert way.assert_arrives(name) == _FIRST + 2 * _MORE + _LOAD
    way.assert_exact_map(name)


def statuses(file: Path) -> dict[str, FlowStatus]:
    async def read() -> dict[str, FlowStatus]:
        reader = StatusReader(load_config(file))
        try:
            return {str(flow.flow): flow for flow in (await reader.read()).flows}
        finally:
            await reader.close()

    return asyncio.run(read())


def await_standby(file: Path, flow: str, run: MirrorRun) -> None:
    def stands_by() -> bool:
        return run.pid in [each.pid for each in statuses(file)[flow].standbys]

    wait_until(stands_by, f"a standby of {flow}", timeout_s=START_S_MAX, poll_s=0.3)


def await_leader(file: Path, flow: str, run: MirrorRun, timeout_s: float) -> None:
    def leads() -> bool:
        return leader(statuses(file)[flow]) == run.pid

    wait_until(leads, f"another leader of {flow}", timeout_s=timeout_s + _PATIENCE_S, poll_s=0.3)


def leader(flow: FlowStatus) -> int | None:
    return None if flow.holder is None else flow.holder.pid
