"""A broker that ends sessions after seconds (connections.max.reauth.ms): nothing shows of it."""

from __future__ import annotations

import time
from pathlib import Path

from heliograph.model import Stalled
from heliograph_tools.localkafka.cluster import ClusterSpec
from tests.kit.clusters import ClusterFactory
from tests.kit.inside import running_inside
from tests.kit.mirror import lasting_topic, route, write_config
from tests.kit.records import numbered, produce

_SESSION_S = 2
_WATCHED_S = 4 * _SESSION_S


def test_lanes_go_on_without_a_stall_while_sessions_end_again_and_again(
    clusters: ClusterFactory, tmp_path: Path
) -> None:
    short = ClusterSpec(
        alias="short",
        sasl="PLAIN",
        broker_config={"connections.max.reauth.ms": str(_SESSION_S * 1000)},
    )
    cluster = clusters(short)["short"]
    name = lasting_topic(cluster, "orders", partitions=3)
    config = write_config(
        tmp_path / "mm2.properties", {"a": cluster, "b": cluster}, {"a->b": {"topics": name}}
    )
    way = route(config, ("a", cluster), ("b", cluster))
    produce(cluster, name, numbered(30, partitions=3))
    stalls: list[str] = []
    with running_inside(config) as mirror:
        way.assert_arrives(name)
        end_s, start = time.monotonic() + _WATCHED_S, 100
        while time.monotonic() < end_s:
            produce(cluster, name, numbered(30, partitions=3, start=start))
            start += 30
            for _ in range(5):
                states = [at.state for at in mirror.slots.progress().values()]
                stalls += [state.detail for state in states if isinstance(state, Stalled)]
                time.sleep(0.05)

        assert way.assert_arrives(name) == start - 70
    assert stalls == []
