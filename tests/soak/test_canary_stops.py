"""A stop is seen by the canary within two of its intervals, whatever stops: told by a webhook.

The driver is a real one, with nothing set but the canary's interval; both clusters are behind
proxies, so that either can go silent as when packets are dropped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from heliograph_tools.localkafka.cluster import ClusterSpec, local_clusters
from heliograph_tools.proxy import TcpProxy
from tests.cluster.test_canary import receiver
from tests.cluster.test_cli import heliograph
from tests.kit.clusters import FAST_START
from tests.kit.mirror import lasting_topic, route, write_config
from tests.kit.records import numbered, produce
from tests.kit.runs import WITHOUT_SPARK, MirrorRun, mirror_runs
from tests.kit.topics import wait_until

log = logging.getLogger(__name__)

_INTERVAL_S = 12
_QUIET_S = 2.5 * _INTERVAL_S


@pytest.mark.timeout(300)
@pytest.mark.parametrize("stopped", ["lanes", "source", "target"])
def test_a_stop_is_told_within_two_intervals(stopped: str, tmp_path: Path) -> None:
    with TcpProxy() as near, TcpProxy() as far, receiver() as (url, posted):
        proxies = {"A": near, "B": far}
        specs = [
            ClusterSpec(alias=alias, advertised_ports=(proxy.port,), jvm_options=FAST_START)
            for alias, proxy in proxies.items()
        ]
        with local_clusters(specs, root=tmp_path / "clusters") as pair, mirror_runs() as runs:
            for alias, proxy in proxies.items():
                proxy.target_port = pair[alias].broker(0).ports.proxied
            name = lasting_topic(pair["A"], "orders")
            produce(pair["A"], name, numbered(10))
            file = write_config(
                tmp_path / "mm2.properties",
                {alias: cluster.proxied_bootstrap for alias, cluster in pair.items()},
                {
                    "A->B": {
                        "topics": name,
                        "canary.enabled": "true",
                        "canary.interval.seconds": str(_INTERVAL_S),
                        "canary.topic.replication.factor": "1",
                        "alarms.webhook.url": url,
                    }
                },
            )
            run = MirrorRun(file, tmp_path / "run.log", "--slots", "1", program=WITHOUT_SPARK)
            runs.append(run)
            run.await_copying()
            route(file, ("A", pair["A"]), ("B", pair["B"])).await_records(name, 10)

            def told() -> list[str]:
                events = [each for event in posted for each in event["detail"]["alarms"]]
                return [each["alarm"] for each in events if each["state"] == "raised"]

            # Canaries arrive, and nothing is told of them.
            time.sleep(_QUIET_S)
            before = [alarm for alarm in told() if alarm == "canary"]
            stop: dict[str, Callable[[], object]] = {
                "lanes": lambda: heliograph(
                    "pause", str(file), "--flow", "A->B", "--topic", "heliograph-canary-A", "--json"
                ),
                "source": near.hold,
                "target": far.hold,
            }
            stop[stopped]()
            began_s = time.monotonic()
            wait_until(lambda: "canary" in told(), "the alarm", timeout_s=90, poll_s=0.1)
            took_s = time.monotonic() - began_s
            near.release()
            far.release()
            run.stop()

    log.info("%s stopped: told after %.1f s, %.2f intervals", stopped, took_s, took_s / _INTERVAL_S)
    assert before == []
    assert took_s <= 2 * _INTERVAL_S
