"""A long, narrow and broken network between mirror and cluster costs time and nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from heliograph.config.load import load_config
from heliograph.copy import sources
from heliograph.copy.chunk import PreparedChunk, prepare_chunk
from heliograph.model import badge
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, local_clusters
from heliograph_tools.proxy import TcpProxy
from tests.kit.clusters import FAST_START, TopicNames
from tests.kit.inside import InsideMirror, running_inside
from tests.kit.leasing import LeasesAside
from tests.kit.mirror import RECORDS_ONLY, Route, lasting_topic, route, write_config
from tests.kit.records import numbered, produce
from tests.kit.topics import wait_until

_RECORDS = 20_000
_VALUE_BYTES = 400
_SLOT_BYTES_MAX = 8 * 1024 * 1024
"""Less than the records of one flow that hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FarRoute:
    route: Route
    """From the far cluster."""
    back: Route
    """To it."""
    proxy: TcpProxy
    mirror: InsideMirror

    def mirrored(self, topic: str) -> int:
        return self.route.appended(topic)

    def await_mirrored(self, topic: str, count: int) -> None:
        wait_until(lambda: self.mirrored(topic) >= count, f"{count} records of the copy")


@pytest.fixture(scope="module")
def far(
    pair: dict[str, LocalCluster], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FarRoute]:
    """A mirror that reaches one of its clusters only through a proxy."""
    root: Path = tmp_path_factory.mktemp("far")
    with TcpProxy() as proxy:
        spec = ClusterSpec(alias="far", advertised_ports=(proxy.port,), jvm_options=FAST_START)
        with local_clusters([spec], root=root / "cluster") as made:
            source = made["far"]
            proxy.target_port = source.broker(0).ports.proxied
            config = write_config(
                root / "mm2.properties",
                {"far": source.proxied_bootstrap, "near": pair["B"]},
                {"far->near": {"topics": "far-.*"}, "near->far": {"topics": "near-.*"}},
                top={**RECORDS_ONLY, "far.consumer.client.id": "reader-of-far"},
            )
            with running_inside(config) as mirror:
                yield FarRoute(
                    route=route(config, ("far", source), ("near", pair["B"])),
                    back=route(config, ("near", pair["B"]), ("far", source)),
                    proxy=proxy,
                    mirror=mirror,
                )


@pytest.fixture(autouse=True)
def _calm_afterwards(far: FarRoute) -> Iterator[None]:
    yield
    far.proxy.delay_ms = 0
    far.proxy.bytes_per_s = None
    far.proxy.drops_every = None
    far.proxy.accept()


def _loaded(far: FarRoute, name: str) -> str:
    lasting_topic(far.route.source, name, partitions=3)
    records = numbered(_RECORDS, partitions=3, value_bytes=_VALUE_BYTES)
    produce(far.route.source, name, records)
    return name


def _await_appended(back: Route, name: str, count: int) -> None:
    wait_until(lambda: back.appended(name) >= count, f"{count} records of the copy")


def test_a_link_with_delay_and_little_bandwidth_carries_everything(
    far: FarRoute, topic: TopicNames
) -> None:
    far.proxy.delay_ms = 50
    far.proxy.bytes_per_s = 2_000_000

    name = _loaded(far, topic("far-slow"))

    assert far.route.assert_arrives(name) == _RECORDS
    far.route.assert_exact_map(name)


def test_a_link_cut_again_and_again_during_a_copy_carries_everything_once(
    far: FarRoute, topic: TopicNames
) -> None:
    far.proxy.bytes_per_s = 2_000_000
    name = _loaded(far, topic("far-cut"))
    for part in range(1, 6):
        far.await_mirrored(name, part * 1_000)
        far.proxy.cut()
    cut_at = far.mirrored(name)

    assert cut_at < _RECORDS
    assert far.route.assert_arrives(name) == _RECORDS
    far.route.assert_exact_map(name)


def test_a_link_down_for_seconds_during_a_copy_carries_the_rest_when_it_is_back(
    far: FarRoute, topic: TopicNames
) -> None:
    far.proxy.bytes_per_s = 2_000_000
    name = _loaded(far, topic("far-down"))
    far.await_mirrored(name, 1_000)
    far.proxy.refuse()
    far.proxy.cut()
    time.sleep(3.0)
    during = far.mirrored(name)
    produce(far.route.source, name, numbered(300, partitions=3, start=100_000))
    far.proxy.accept()

    assert during < _RECORDS
    assert far.route.assert_arrives(name) == _RECORDS + 300
    far.route.assert_exact_map(name)


def test_a_link_that_drops_every_third_connection_carries_everything_once(
    far: FarRoute, topic: TopicNames
) -> None:
    far.proxy.drops_every = 3
    far.proxy.bytes_per_s = 2_000_000
    name = _loaded(far, topic("far-third"))
    for part in range(1, 4):
        far.await_mirrored(name, part * 1_000)
        far.proxy.cut()
    cut_at = far.mirrored(name)

    assert cut_at < _RECORDS
    assert far.route.assert_arrives(name) == _RECORDS
    far.route.assert_exact_map(name)


def test_lanes_of_a_cluster_that_falls_silent_say_what_they_wait_for(
    far: FarRoute, topic: TopicNames
) -> None:
    """They said `idle`, and `copying`, until a time-out of half a minute made it a stall."""
    name = lasting_topic(far.route.source, topic("far-silent"))
    back = lasting_topic(far.back.source, topic("near-silent"))
    for way, each in ((far.route, name), (far.back, back)):
        produce(way.source, each, numbered(3))
        assert way.assert_arrives(each) == 3

    def shown() -> dict[str, str]:
        lanes = far.mirror.slots.progress().values()
        return {
            at.lane.source.topic: badge(at.state)
            for at in lanes
            if at.lane.source.topic in (name, back)
        }

    wait_until(lambda: set(shown().values()) == {"idle"}, "two lanes to be idle")
    far.proxy.hold()
    try:
        for way, each in ((far.route, name), (far.back, back)):
            produce(way.source, each, numbered(3, start=3))
        waits = {name: "waiting: source answer", back: "waiting: target answer"}
        wait_until(lambda: shown() == waits, "two lanes to say what they wait for")
        lags = {
            str(at.lane.source.topic): at.lag_records for at in far.mirror.slots.progress().values()
        }
    finally:
        far.proxy.release()

    assert (lags[name], lags[back]) == (None, 3)
    assert far.route.assert_arrives(name) == far.back.assert_arrives(back) == 6
    wait_until(lambda: set(shown().values()) == {"idle"}, "two lanes to be idle again")


def test_a_target_that_hangs_does_not_stop_the_flow_to_another(
    far: FarRoute, pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = lasting_topic(pair["A"], topic("both"))
    produce(pair["A"], name, numbered(10))
    config = write_config(
        tmp_path / "mm2.properties",
        {"src": pair["A"], "hung": far.route.source.proxied_bootstrap, "fine": pair["B"]},
        {"src->hung": {"topics": name}, "src->fine": {"topics": name}},
    )
    fine = route(config, ("src", pair["A"]), ("fine", pair["B"]))
    with closing(InsideMirror(config, bytes_max=_SLOT_BYTES_MAX)) as mirror:
        mirror.catch_up(lanes=2)
        # What is on its way is held back for longer than anybody waits, and nothing is refused.
        far.proxy.delay_ms = 1_000_000
        try:
            produce(pair["A"], name, numbered(_RECORDS, start=10, value_bytes=2 * _VALUE_BYTES))

            assert fine.assert_arrives(name, timeout_s=25.0) == _RECORDS + 10
        finally:
            far.proxy.delay_ms = 0
            far.proxy.cut()


def test_a_surge_of_ten_times_what_a_slot_may_keep_stays_on_the_source(
    far: FarRoute, pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = lasting_topic(pair["A"], topic("surge"), partitions=4)
    records = numbered(10 * _SLOT_BYTES_MAX // 2_000, partitions=4, value_bytes=2_000)
    produce(pair["A"], name, records)
    config = write_config(
        tmp_path / "mm2.properties",
        {"src": pair["A"], "slow": far.route.source.proxied_bootstrap},
        {"src->slow": {"topics": name}},
    )
    process, rss_bytes = psutil.Process(), 0
    far.proxy.bytes_per_s = 100_000
    with closing(InsideMirror(config, bytes_max=_SLOT_BYTES_MAX)) as mirror:
        before_bytes = process.memory_info().rss
        mirror.reconcile()
        wait_until(lambda: _appended(mirror) > 0, "a first batch", timeout_s=60)
        for _ in range(20):
            time.sleep(0.1)
            rss_bytes = max(rss_bytes, process.memory_info().rss)
        received = sum(at.received_bytes for at in mirror.slots.progress().values())

    assert _SLOT_BYTES_MAX / 2 < received < 3 * _SLOT_BYTES_MAX
    assert rss_bytes - before_bytes < 4 * _SLOT_BYTES_MAX


def _appended(mirror: InsideMirror) -> int:
    return sum(at.position for at in mirror.slots.progress().values())


def test_a_link_of_a_tenth_of_a_megabyte_carries_many_lanes_a_little_at_a_time(
    far: FarRoute, topic: TopicNames
) -> None:
    name = lasting_topic(far.route.source, topic("far-narrow"), partitions=40)
    for part in range(8):
        records = numbered(400, partitions=40, start=part * 400, value_bytes=90)
        produce(far.route.source, name, records)
    far.proxy.delay_ms = 150
    far.proxy.bytes_per_s = 100_000

    assert far.route.assert_arrives(name) == 3_200


def test_a_target_at_the_end_of_a_long_link_that_is_cut_gets_everything_once(
    far: FarRoute, topic: TopicNames
) -> None:
    name = lasting_topic(far.back.source, topic("near-cut"), partitions=3)
    far.proxy.delay_ms = 50
    far.proxy.bytes_per_s = 4_000_000
    produce(far.back.source, name, numbered(_RECORDS, partitions=3, value_bytes=_VALUE_BYTES))
    for enough in (1_000, 2_000, 3_000):
        _await_appended(far.back, name, enough)
        far.proxy.cut()
    cut_at = far.back.appended(name)

    assert cut_at < _RECORDS
    assert far.back.assert_arrives(name) == _RECORDS
    far.back.assert_exact_map(name)


def test_a_driver_goes_on_leading_a_flow_whose_target_is_half_a_second_away(far: FarRoute) -> None:
    """Eight seconds of lease, of which a look took five round trips and a renewal thirteen: at
    200 ms the driver lost its lease again and again, and nothing was mirrored."""
    far.proxy.delay_ms = 250
    with closing(LeasesAside(load_config(far.back.config))) as leases:
        leases.start()
        wait_until(lambda: leases.leads(far.back.flow), "the lease over a long link")

        ends_s = time.monotonic() + 12
        while time.monotonic() < ends_s:
            assert leases.leads(far.back.flow)
            time.sleep(0.1)


def test_each_record_crosses_the_link_to_the_source_once(
    far: FarRoute, topic: TopicNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while lanes are spread over several connections, which a delay leads to."""
    tails: list[int] = []
    batches: list[int] = []

    def noted(fetched: memoryview, *args: Any, **more: Any) -> PreparedChunk:
        chunk = prepare_chunk(fetched, *args, **more)
        whole = [len(batch.view) for batch in chunk.batches]
        tails.append(len(fetched) - sum(whole))
        batches.extend(whole)
        return chunk

    monkeypatch.setattr(sources, "prepare_chunk", noted)
    far.proxy.delay_ms = 20
    before = far.proxy.back.bytes_forwarded

    name = _loaded(far, topic("far-once"))
    assert far.route.assert_arrives(name) == _RECORDS

    crossed = far.proxy.back.bytes_forwarded - before
    lanes = [at for at in far.mirror.slots.progress().values() if at.lane.source.topic == name]
    received = sum(at.received_bytes for at in lanes)
    sent = sum(at.sent_bytes for at in lanes)
    # All that came twice is what a broker cut off at the end of an answer: less than a batch.
    assert received == sent + sum(tails)
    assert max(tails) < max(batches)
    assert sent > _RECORDS * _VALUE_BYTES
    # What is left are headers, and answers without records.
    assert crossed < 1.1 * received
