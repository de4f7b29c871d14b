"""Clusters that change places again and again under one driver that lives through it all."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from heliograph.failback.divergence import Resolution
from heliograph.ledger.service import LedgerService
from heliograph.model import FlowId, TopicName
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.exact import assert_exact_lane
from tests.kit.failback import Stage, contents, open_stage
from tests.kit.inside import running_inside
from tests.kit.mirror import lasting_topic
from tests.kit.records import Transaction, numbered, produce, produce_transactions, read_all
from tests.kit.soaking import in_soak
from tests.kit.topics import wait_until

PARTITIONS = 2
WRITTEN = 40
ROUND_TRIPS = in_soak(3, ci=1)


def test_a_driver_that_outlives_round_trips_loses_and_repeats_nothing_and_maps_exactly(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    """A failback renews the flow's producer, of which the driver and its slots know another."""
    name = lasting_topic(pair["A"], topic("lasting"), partitions=PARTITIONS)
    stage = open_stage(pair, name, tmp_path, name)
    _write(stage, stage.there, name, 0)
    stage.mirror(stage.there, lanes=PARTITIONS)
    stage.fail_over(stage.there, "unplanned")
    written, left = 1, stage.there
    producers: list[int] = []

    with running_inside(stage.file, leased=True) as driver:
        for _ in range(2 * ROUND_TRIPS):
            there = FlowId(source=left.target, target=left.source)
            _write(stage, there, name, written)
            resolutions = stage.fail_back(flow=left).resolutions
            _write(stage, there, name, written + 1)
            written += 2
            _await_copy(stage, name, written)
            producer = driver.ledgers.ask(there, lambda view: view.flow)
            assert producer is not None
            producers.append(producer.producer_id)
            assert resolutions == {TopicName(name): Resolution.CONTINUE}
            assert driver.stalls == []
            stage.fail_over(there, "planned")
            _assert_exact(stage, there, name)
            left = there

    assert len(set(producers)) == 2 * ROUND_TRIPS


def _write(stage: Stage, flow: FlowId, name: str, number: int) -> None:
    """Committed and aborted transactions, so that offsets of the two clusters differ."""
    source = stage.old if flow == stage.there else stage.present
    start = number * WRITTEN
    kept = numbered(WRITTEN, partitions=PARTITIONS, start=start)
    made = [
        Transaction(records=kept[: WRITTEN // 2]),
        Transaction(records=numbered(3, partitions=PARTITIONS, start=10**6), commit=False),
    ]
    produce_transactions(source, name, made, transactional_id=f"{flow}-{name}")
    produce(source, name, kept[WRITTEN // 2 :])


def _await_copy(stage: Stage, name: str, written: int) -> None:
    """Both clusters have what was written so far: all of it, once, and in order."""

    def arrived() -> bool:
        found = [read_all(cluster, name) for cluster in (stage.old, stage.present)]
        return all(sum(map(len, each.values())) >= written * WRITTEN for each in found)

    wait_until(arrived, f"{written * WRITTEN} records of {name}", timeout_s=60, poll_s=0.2)
    old, present = read_all(stage.old, name), read_all(stage.present, name)
    for number in range(PARTITIONS):
        made = numbered(written * WRITTEN, partitions=PARTITIONS)
        wanted = [record.key for record in made if record.partition == number]
        assert [record.key for record in old[number]] == wanted
        assert contents(present[number]) == contents(old[number])


def _assert_exact(stage: Stage, flow: FlowId, name: str) -> None:
    clusters = (stage.old, stage.present)
    source, target = clusters if flow == stage.there else reversed(clusters)
    wanted, found = read_all(source, name), read_all(target, name)
    with closing(LedgerService(stage.config.clusters)) as ledgers:
        view = ledgers.view(flow)
        for number in range(PARTITIONS):
            lane = view.lane(TopicName(name), number)
            assert lane is not None
            assert_exact_lane(lane, wanted[number], found[number])
