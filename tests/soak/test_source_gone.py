"""A source that is gone, a cluster that is slow: metrics, API and page stay up, and are true.

The mirror reaches its source through a proxy; producers do not, so what is told can be wrong.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families as families_of

from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, local_clusters
from heliograph_tools.localkafka.ports import PortHold
from heliograph_tools.proxy import TcpProxy
from tests.kit.clusters import FAST_START, TopicNames
from tests.kit.mirror import lasting_topic, route, write_config
from tests.kit.records import numbered, produce
from tests.kit.runs import WITHOUT_SPARK, MirrorRun, mirror_runs
from tests.kit.topics import wait_until

_ANSWER_S_MAX = 5.0
_LOOKED_S_MAX = 2.0
_DELAY_MS = 500
"""Each way: a request and its answer take a second."""
_NOTICED_S = 60.0
_QUICK = {
    "alarms.interval.seconds": "1",
    "alarms.stall.seconds": "5",
    "alarms.clear.seconds": "0",
}


@contextmanager
def source_behind(proxy: TcpProxy, folder: Path) -> Iterator[LocalCluster]:
    spec = ClusterSpec(alias="A", advertised_ports=(proxy.port,), jvm_options=FAST_START)
    with local_clusters([spec], root=folder / "cluster") as made:
        proxy.target_port = made["A"].broker(0).ports.proxied
        yield made["A"]


def hold(proxy: TcpProxy) -> None:
    """As when packets are dropped: connections stay, nothing is answered."""
    proxy.hold()


def refuse(proxy: TcpProxy) -> None:
    proxy.refuse()
    proxy.cut()


def notice(true: Callable[[], bool], what: str) -> None:
    wait_until(true, what, timeout_s=_NOTICED_S, poll_s=0.2)


class Seen:
    """What the driver tells, each within the time that a client waits for."""

    def __init__(self, port: int, topic: str) -> None:
        self._url, self._topic = f"http://127.0.0.1:{port}", topic
        self.slowest_s = 0.0

    def text(self, path: str) -> str:
        began_s = time.monotonic()
        with urlopen(f"{self._url}{path}", timeout=30) as answer:
            found: str = answer.read().decode()
        self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)
        return found

    def json(self, path: str) -> Any:
        return json.loads(self.text(path))

    def lane(self) -> dict[str, Any]:
        (found,) = self.json(f"/v1/lanes?topic={self._topic}")["lanes"]
        assert isinstance(found, dict)
        return found

    def flow(self) -> dict[str, Any]:
        (found,) = self.json("/v1/flows")["flows"]
        assert isinstance(found, dict)
        return found

    def clocks(self) -> dict[str, float]:
        """Of whom it is known how far ahead they are."""
        return {
            sample.labels["clock"]: sample.value
            for family in families_of(self.text("/metrics"))
            for sample in family.samples
            if sample.name == "heliograph_clock_ahead_seconds"
        }

    def alarms(self) -> set[str]:
        open_ones = [each for each in self.json("/v1/alarms")["alarms"] if not each["ended_ms"]]
        return {each["alarm"] for each in open_ones}

    def lag(self) -> list[float]:
        return self.metric("heliograph_lag_records", position="acknowledged")

    def metric(self, name: str, **labels: str) -> list[float]:
        """Values of the topic's series; none where there is no series."""
        return [
            sample.value
            for family in families_of(self.text("/metrics"))
            for sample in family.samples
            if sample.name == name
            and sample.labels.get("topic") == self._topic
            and labels.items() <= sample.labels.items()
        ]


@pytest.mark.parametrize("go", [hold, refuse])
def test_metrics_api_and_page_stay_up_and_say_what_they_do_not_know(
    go: Callable[[TcpProxy], None],
    pair: dict[str, LocalCluster],
    topic: TopicNames,
    tmp_path: Path,
) -> None:
    with TcpProxy() as proxy, source_behind(proxy, tmp_path) as source, mirror_runs() as runs:
        name = lasting_topic(source, topic("gone"))
        number = name.rpartition("-")[2]
        alias, target = f"gone{number}", f"left{number}"
        flow = f"{alias}->{target}"
        file = write_config(
            tmp_path / "mm2.properties",
            {alias: source.proxied_bootstrap, target: pair["B"]},
            {flow: {"topics": name, **_QUICK}},
        )
        port_hold = PortHold()
        seen = Seen(port_hold.port, name)
        produce(source, name, numbered(30))
        port_hold.close()
        api = ("--slots", "1", "--api", f"127.0.0.1:{port_hold.port}")
        run = MirrorRun(file, tmp_path / "run.log", *api, program=WITHOUT_SPARK)
        runs.append(run)
        run.await_copying()
        way = route(file, (alias, source), (target, pair["B"]))
        way.await_records(name, 30)
        notice(lambda: seen.lag() == [0.0], "a lag of nothing")
        notice(lambda: seen.clocks().keys() == {alias, target, "slot 0"}, "every clock")
        clocks = seen.clocks()

        go(proxy)
        produce(source, name, numbered(20))
        notice(lambda: seen.lane()["lag_records"] is None, "a lag that is not known")
        notice(lambda: seen.lag() == [], "no series of it")
        notice(lambda: seen.flow()["verdict"] not in ("healthy", None), "a verdict")
        notice(lambda: f"stall:{name}" in seen.alarms(), "an alarm")
        lane, told, copied = seen.lane(), seen.flow(), seen.metric("heliograph_records_total")
        live = seen.text("/page/live")
        seen.text("/page/cutover")
        notice(lambda: "not yet" in seen.text("/page/cutover"), "no cutover")
        cutover = seen.text("/page/cutover")
        slowest_s = seen.slowest_s

        proxy.accept()
        proxy.release()
        way.await_records(name, 50)
        notice(lambda: seen.lag() == [0.0], "a lag of nothing")
        notice(lambda: seen.flow()["verdict"] == "healthy" and not seen.alarms(), "all well")
        run.stop()

    assert max(map(abs, clocks.values())) < 1.0
    assert lane["state"] in ("waiting", "stalled")
    assert (told["lag_records"], told["motion"]) != (0, "idle")
    assert told["lag_records"] is None
    assert copied == [30.0], "what was copied is known all the same"
    row = re.search(r'<tr data-key="lane .*?</tr>', live, re.DOTALL)
    assert row is not None
    assert name in row[0]
    assert "unknown" in row[0]
    assert "ready" not in cutover
    assert slowest_s < _ANSWER_S_MAX


@pytest.mark.parametrize("slow", ["source", "target"])
def test_a_cluster_that_answers_slowly_holds_up_no_one_who_looks(
    slow: str, pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    with TcpProxy() as proxy, source_behind(proxy, tmp_path) as behind, mirror_runs() as runs:
        clusters = {"source": pair["A"], "target": pair["B"]} | {slow: behind}
        source, target = clusters["source"], clusters["target"]
        name = lasting_topic(source, topic("slow"))
        number = name.rpartition("-")[2]
        alias, other = f"slow{number}", f"far{number}"
        flow = f"{alias}->{other}"
        reached = {alias: source.bootstrap, other: target.bootstrap} | {
            (alias if slow == "source" else other): behind.proxied_bootstrap
        }
        file = write_config(
            tmp_path / "mm2.properties", reached, {flow: {"topics": name, **_QUICK}}
        )
        port_hold = PortHold()
        seen = Seen(port_hold.port, name)
        produce(source, name, numbered(30))
        port_hold.close()
        api = ("--slots", "1", "--api", f"127.0.0.1:{port_hold.port}")
        run = MirrorRun(file, tmp_path / "run.log", *api, program=WITHOUT_SPARK)
        runs.append(run)
        run.await_copying()
        way = route(file, (alias, source), (other, target))
        way.await_records(name, 30)
        notice(lambda: seen.lag() == [0.0], "a lag of nothing")
        seen.text("/page/cutover")
        seen.slowest_s = 0.0

        proxy.delay_ms = _DELAY_MS
        produce(source, name, numbered(20))
        untrue = []
        until_s = time.monotonic() + 20
        while time.monotonic() < until_s:
            copied, lag = seen.metric("heliograph_records_total"), seen.lag()
            # As the slot heard it last; no series while the flow is not led.
            if copied not in ([], [30.0], [50.0]) or any(value < 0 for value in lag):
                untrue.append((copied, lag))
            for path in ("/page/live", "/page/cutover", "/page/groups", "/v1/flows", "/v1/lanes"):
                seen.text(path)
            time.sleep(0.2)
        slowest_s = seen.slowest_s
        # A target as far away as this may outlast the lease, which is then said.
        proxy.delay_ms = 0
        notice(lambda: seen.metric("heliograph_records_total") == [50.0], "all records")
        notice(lambda: seen.lag() == [0.0], "a lag of nothing")
        notice(lambda: seen.flow()["verdict"] == "healthy", "a verdict")
        notice(lambda: "<h4>" in seen.text("/page/cutover"), "what the clusters say")
        run.stop()

    assert untrue == []
    assert slowest_s < _LOOKED_S_MAX
