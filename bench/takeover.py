"""A standby driver takes over: how long from kill -9, or SIGTERM, of the one that leads.

    python -m bench.takeover [--kills 10] [--stops 5] [--add]

Two real `heliograph run` processes share a flow under a steady load; the one that leads is killed,
the other takes over, another is started in its place, and so on. Each believes that it is on a
machine of its own, so that nothing but the lease tells it of the other's end. Its slot runs before
the other ends, as that of a standby does which has been there for some seconds. At the end the
records of both sides must be equal and in order. Writes bench/results/operate/takeover.json; with
`--add` more rounds into it, on other brokers, if the same tree measured those that are there.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from confluent_kafka import Producer
from tests.kit.inside import carry
from tests.kit.mirror import Route, lasting_topic, route, write_config
from tests.kit.records import end_offsets
from tests.kit.runs import MirrorRun, mirror_runs
from tests.kit.topics import wait_until

from heliograph.config.load import load_config
from heliograph_tools.bench.machine import source_tree, this_machine
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, local_clusters

RESULTS: Final = Path(__file__).parent / "results" / "operate" / "takeover.json"
How = Literal["kill -9", "SIGTERM"]
_TOPIC: Final = "taken-over"
_RECORDS_PER_S: Final = 200
_LOOK_S: Final = 0.02
_S_MAX: Final = 120.0
_ELSEWHERE: Final = (
    "-c",
    "import os; from heliograph import processes; "
    "processes.machine_id = lambda: f'machine of {os.getpid()}'; "
    "from heliograph.cli.app import main; main()",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver:
    how: How
    led_s: float
    """Until the other driver says that it has taken the flow over."""
    copied_s: float
    """Until a record that was written after the end of the first is on the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    rounds: list[TakenOver]
    lease_ms: int
    equal_records: int
    """Of both sides, in order: all there are."""

    def __add__(self, more: Measured) -> Measured:
        return Measured(
            rounds=self.rounds + more.rounds,
            lease_ms=more.lease_ms,
            equal_records=self.equal_records + more.equal_records,
        )


@contextmanager
def _load(cluster: LocalCluster) -> Iterator[None]:
    """A steady stream of numbered records, until the block ends."""
    producer = Producer({**cluster.librdkafka_config, "acks": "all", "linger.ms": 2})
    stop, number = threading.Event(), 0

    def write() -> None:
        nonlocal number
        began_s = time.monotonic()
        while not stop.wait(0.01):
            while number < (time.monotonic() - began_s) * _RECORDS_PER_S:
                producer.produce(_TOPIC, b"%d" % number, partition=number % 2)
                number += 1
            producer.poll(0)

    writing = threading.Thread(target=write, daemon=True)
    writing.start()
    try:
        yield
    finally:
        stop.set()
        writing.join()
        producer.flush(30)


def _end(how: How, leader: MirrorRun, standby: MirrorRun, way: Route) -> TakenOver:
    seen = len(standby.said)
    source_end = end_offsets(way.source, _TOPIC)
    ended_s = time.monotonic()
    if how == "kill -9":
        leader.send_signal(signal.SIGKILL)
    else:
        leader.send_signal(signal.SIGTERM)
    # What was written by now may have been copied by the first; the next one was not.
    after = {number: max(end, source_end[number]) for number, end in _ends(way.source).items()}
    led_s, deadline_s = 0.0, ended_s + _S_MAX
    while time.monotonic() < deadline_s:
        if not led_s and "taken over" in standby.said[seen:]:
            led_s = time.monotonic() - ended_s
        if led_s and any(end > after[n] for n, end in _ends(way.target, way).items()):
            return TakenOver(
                how=how, led_s=round(led_s, 2), copied_s=round(time.monotonic() - ended_s, 2)
            )
        time.sleep(_LOOK_S)
    raise AssertionError(f"not taken over in {_S_MAX} s:\n{standby.last_words}")


def _ends(cluster: LocalCluster, way: Route | None = None) -> dict[int, int]:
    return dict(end_offsets(cluster, _TOPIC if way is None else way.renamed(_TOPIC)))


def measure(root: Path, hows: list[How]) -> Measured:
    with local_clusters([ClusterSpec(alias="A"), ClusterSpec(alias="B")], root=root) as made:
        lasting_topic(made["A"], _TOPIC, partitions=2)
        file = write_config(
            root / "mm2.properties",
            {"A": made["A"], "B": made["B"]},
            {"A->B": {"topics": _TOPIC}},
        )
        way = route(file, ("A", made["A"]), ("B", made["B"]))
        found: list[TakenOver] = []
        with mirror_runs() as runs, _load(made["A"]):

            def started() -> MirrorRun:
                with socket.create_server(("127.0.0.1", 0)) as taken:
                    listen = f"127.0.0.1:{taken.getsockname()[1]}"
                run = MirrorRun(
                    file,
                    root / f"run-{len(runs)}.log",
                    *("--master", "local[2]", "--slots", "1", "--api", listen),
                    program=_ELSEWHERE,
                )
                runs.append(run)
                run.await_running()
                wait_until(lambda: _slot_runs(listen), "a slot that runs", timeout_s=60)
                return run

            leader = started()
            leader.await_copying()
            for how in hows:
                standby = started()
                standby.wait_for_words("standby")
                found.append(_end(how, leader, standby, way))
                print(found[-1], flush=True)
                leader.wait()
                leader.kill()  # what a killed driver left of its Spark
                leader = standby
            leader.stop()
        carry(file)
        wait_until(lambda: _ends(made["A"]) == _ends(made["B"], way), "all records", timeout_s=60)
        lease_ms = load_config(file).engine.driver_lease_ms
        return Measured(rounds=found, lease_ms=lease_ms, equal_records=way.assert_arrives(_TOPIC))


def _slot_runs(address: str) -> bool:
    """A standby whose slot is still starting would be waited for, and not the hand-over."""
    with urllib.request.urlopen(f"http://{address}/v1/slots", timeout=10) as response:
        return any(each["state"] == "running" for each in json.load(response)["slots"])


def _summary(found: Measured, how: How) -> dict[str, float]:
    led_s = [each.led_s for each in found.rounds if each.how == how]
    copied_s = [each.copied_s for each in found.rounds if each.how == how]
    return {
        "led_s_median": statistics.median(led_s),
        "led_s_max": max(led_s),
        "copied_s_median": statistics.median(copied_s),
        "copied_s_max": max(copied_s),
    }


def _measured_before(file: Path, tree: str) -> Measured | None:
    """None where another tree, or a changed one, measured them: such rounds are not one figure."""
    if not file.exists():
        return None
    there = json.loads(file.read_text())
    if there.get("source_tree") != tree or tree.endswith("+"):
        return None
    rounds = [TakenOver(**each) for each in there["rounds"]]
    return Measured(rounds=rounds, lease_ms=there["lease_ms"], equal_records=there["equal_records"])


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    asked.add_argument("--kills", type=int, default=10)
    asked.add_argument("--stops", type=int, default=5)
    asked.add_argument("--add", action="store_true")
    asked.add_argument("--results", type=Path, default=RESULTS)
    given = asked.parse_args()
    kills: list[How] = ["kill -9"] * given.kills
    stops: list[How] = ["SIGTERM"] * given.stops
    tree, before = source_tree(Path(__file__).parent), None
    if given.add:
        before = _measured_before(given.results, tree)
    with tempfile.TemporaryDirectory(prefix="heliograph-takeover-") as root:
        found = measure(Path(root), [*kills, *stops])
    if before is not None:
        found = before + found
    given.results.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "source_tree": tree,
        "machine": asdict(this_machine()),
        **asdict(found),
        "summary": {how: _summary(found, how) for how in {each.how for each in found.rounds}},
    }
    given.results.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
