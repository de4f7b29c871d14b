"""A limit of a cluster: held for all flows together, shared fairly, lifted by a decision."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

import pytest

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.cluster.test_cli import heliograph
from tests.kit.clusters import TopicNames
from tests.kit.inside import InsideMirror, running_inside
from tests.kit.mirror import RECORDS_ONLY, lasting_topic, route, write_config
from tests.kit.records import NewRec, produce
from tests.kit.topics import wait_until

_RECORDS: Final = 12_000
_RATE: Final = 1_000_000
_MEASURED_S: Final = 5.0


def test_what_all_flows_write_to_a_cluster_is_held_and_shared_until_it_is_lifted(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    source, target = pair["A"], pair["B"]
    name = lasting_topic(source, topic("limited"), partitions=2)
    number = name.rpartition("-")[2]
    one, two, to = (f"{alias}{number}" for alias in ("one", "two", "to"))
    config = write_config(
        tmp_path / "mm2.properties",
        {one: source, two: source, to: target},
        {f"{one}->{to}": {"topics": name}, f"{two}->{to}": {"topics": name}},
        top={**RECORDS_ONLY, f"{to}.throttle.write.bytes.per.second": str(_RATE)},
    )
    ways = [route(config, (alias, source), (to, target)) for alias in (one, two)]
    bulk = [NewRec(value=os.urandom(1_000)) for _ in range(_RECORDS)]
    produce(source, name, bulk, batch_bytes_max=16_384)

    with running_inside(config, leased=True) as inside:
        wait_until(lambda: min(sent(inside).values(), default=0) > 0, "both flows", timeout_s=30)
        wait_until(lambda: sum(sent(inside).values()) > _RATE, "a megabyte", timeout_s=30)
        began_s, before = time.monotonic(), sent(inside)
        time.sleep(_MEASURED_S)
        elapsed_s, after = time.monotonic() - began_s, sent(inside)
        refused = heliograph("throttle", str(config), "1MB/s", "--cluster", one, "--side", "write")
        lifted = heliograph("throttle", str(config), "none", "--cluster", to, "--json")
        for way in ways:
            way.await_records(name, _RECORDS, timeout_s=30)

    rates = {alias: (after[alias] - before[alias]) / elapsed_s for alias in after}
    assert sum(rates.values()) == pytest.approx(_RATE, rel=0.08)
    assert min(rates.values()) > 0.35 * _RATE
    assert f"no flow writes to cluster '{one}'" in refused.err
    assert [each["flow"] for each in lifted.document["flows"]] == [f"{one}->{to}", f"{two}->{to}"]
    for way in ways:
        assert way.assert_arrives(name) == _RECORDS


def sent(inside: InsideMirror) -> dict[str, int]:
    """Bytes that left for the target, by the alias they came from."""
    found: dict[str, int] = {}
    for lane, at in inside.slots.progress().items():
        found[lane.flow.source] = found.get(lane.flow.source, 0) + at.sent_bytes
    return found
