"""Two real `heliograph run`: one is killed and the other mirrors on; a second signal ends it."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Final

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.mirror import lasting_topic, route, write_config
from tests.kit.records import numbered, produce
from tests.kit.runs import MirrorRun, mirror_once, mirror_runs

# As on another machine: nothing tells the driver that the other's process is gone.
_ELSEWHERE: Final = (
    "-c",
    "from heliograph import processes; processes.machine_id = lambda: 'elsewhere'; "
    "from heliograph.cli.app import main; main()",
)
_FIRST, _MORE, _LOAD = 200, 100, 20_000
_TAKE_OVER_S_MAX: Final = 20.0
"""Six or seven seconds were measured, of which the lease is most; a busy machine adds its own."""
_END_S_MAX: Final = 10.0


def test_a_killed_driver_is_followed_in_time_and_a_second_signal_ends_the_follower_at_once(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = lasting_topic(pair["A"], topic("standby"))
    number = name.rpartition("-")[2]
    source, target = f"stA{number}", f"stB{number}"
    file = write_config(
        tmp_path / "mm2.properties",
        {source: pair["A"], target: pair["B"]},
        {f"{source}->{target}": {"topics": name}},
    )
    way = route(file, (source, pair["A"]), (target, pair["B"]))
    produce(pair["A"], name, numbered(_FIRST))
    narrow = ("--master", "local[2]", "--slots", "1")
    with mirror_runs() as runs:
        first = MirrorRun(file, tmp_path / "first.log", *narrow)
        runs.append(first)
        way.await_records(name, _FIRST, timeout_s=120)
        second = MirrorRun(file, tmp_path / "second.log", *narrow, program=_ELSEWHERE)
        runs.append(second)
        second.wait_for_words("standby")
        second.await_running()

        killed_s = time.monotonic()
        first.kill()
        second.wait_for_words("taken over")
        led_s = time.monotonic() - killed_s
        produce(pair["A"], name, numbered(_MORE, start=_FIRST))
        way.await_records(name, _FIRST + _MORE)

        produce(pair["A"], name, numbered(_LOAD, start=_FIRST + _MORE))
        second.send_signal(signal.SIGTERM)
        second.wait_for_words("press Ctrl-C again")
        signalled_s = time.monotonic()
        code = second.stop(signal.SIGTERM)
        ended_s = time.monotonic() - signalled_s

    last = mirror_once(file)

    assert led_s < _TAKE_OVER_S_MAX
    # Where all had settled before the second signal came, the first one ended it.
    assert code in (0, 128 + signal.SIGTERM)
    assert ended_s < _END_S_MAX
    assert last.exit_code == 0, last.last_words
    assert way.assert_arrives(name) == _FIRST + _MORE + _LOAD
    way.assert_exact_map(name)
