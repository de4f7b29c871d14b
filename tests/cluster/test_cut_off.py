"""A driver and its slots that lose the target while the flow is failed over append nothing more.

They reach the target through a proxy; the failover and the clients that write there do not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from heliograph.config.load import load_config
from heliograph.errors import BrokerError
from heliograph.failover.command import FailoverOrder, fail_over
from heliograph.ledger.leadership import Fenced, Lapsed
from heliograph.model import FlowId, Stalled, StallReason
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, local_clusters
from heliograph_tools.proxy import TcpProxy
from tests.kit.clusters import FAST_START, TopicNames
from tests.kit.failing_over import NOBODY
from tests.kit.inside import InsideMirror, running_inside
from tests.kit.mirror import RECORDS_ONLY, lasting_topic, route, write_config
from tests.kit.records import numbered, produce, read_all
from tests.kit.topics import wait_until

_LEASE = {"driver.lease.ms": "2000"}
_BEFORE, _LATE, _CLIENTS = 50, 40, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One flow of its own between the shared source and a target behind a proxy."""

    folder: Path
    source: LocalCluster
    target: LocalCluster
    proxy: TcpProxy
    topic: str

    @property
    def flow(self) -> FlowId:
        return route(self.folder, (f"P{self._number}", self.source), self._target).flow

    @property
    def _number(self) -> str:
        return self.topic.rpartition("-")[2]

    @property
    def _target(self) -> tuple[str, LocalCluster]:
        return f"S{self._number}", self.target

    @property
    def mirrored(self) -> str:
        return f"{self.flow.source}.{self.topic}"

    def file(self, *, far: bool) -> Path:
        """`far` is the mirror's; the operator's has no source and needs no proxy."""
        return write_config(
            self.folder / f"{self.topic}-{far}.properties",
            {
                self.flow.source: self.source if far else NOBODY,
                self.flow.target: self.target.proxied_bootstrap if far else self.target,
            },
            {str(self.flow): {"topics": self.topic}},
            top={**RECORDS_ONLY, **_LEASE},
        )

    def fail_over(self) -> None:
        order = FailoverOrder(flow=self.flow, mode="unplanned")
        asyncio.run(fail_over(load_config(self.file(far=False)), order, lambda _: None))

    def values(self) -> list[bytes | None]:
        return [record.value for record in read_all(self.target, self.mirrored)[0]]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalCluster, TcpProxy]]:
    with TcpProxy() as proxy:
        spec = ClusterSpec(alias="B", advertised_ports=(proxy.port,), jvm_options=FAST_START)
        with local_clusters([spec], root=tmp_path_factory.mktemp("cut")) as made:
            proxy.target_port = made["B"].broker(0).ports.proxied
            yield made["B"], proxy


@pytest.fixture
def site(
    pair: dict[str, LocalCluster],
    target: tuple[LocalCluster, TcpProxy],
    topic: TopicNames,
    tmp_path: Path,
) -> Site:
    name = lasting_topic(pair["A"], topic("cut"))
    return Site(folder=tmp_path, source=pair["A"], target=target[0], proxy=target[1], topic=name)


def cut(proxy: TcpProxy) -> None:
    """A router that says no."""
    proxy.refuse()
    proxy.cut()


def heal(proxy: TcpProxy) -> None:
    proxy.accept()
    proxy.release()


@pytest.mark.parametrize("lose", [cut, TcpProxy.hold], ids=["reset", "silent"])
def test_a_driver_that_was_cut_off_stops_by_itself_and_nothing_follows_the_clients_records(
    site: Site, lose: Callable[[TcpProxy], None]
) -> None:
    produce(site.source, site.topic, numbered(_BEFORE))
    with running_inside(site.file(far=True), leased=True) as mirror:
        await_copied(site, mirror)

        lose(site.proxy)
        lost_s = time.monotonic()
        produce(site.source, site.topic, numbered(_LATE, start=_BEFORE))
        wait_until(lambda: not mirror.leaderships.leads(site.flow), "the lease to lapse")
        stopped_s = time.monotonic() - lost_s
        value = mirror.leaderships[site.flow]
        wait_until(lambda: not mirror.slots.current(), "the lane to leave its slot")
        site.fail_over()
        produce(site.target, site.mirrored, numbered(_CLIENTS, start=1_000))
        before = site.values()
        heal(site.proxy)
        wait_until(lambda: is_fenced(site, mirror), "the driver to see the fence", timeout_s=40)
        time.sleep(1.0)

        assert isinstance(value, Lapsed)
        assert stopped_s < 2.5
        assert len(before) == _BEFORE + _CLIENTS
        assert site.values() == before


def test_slots_that_were_cut_off_see_the_fence_before_they_append_again(site: Site) -> None:
    """Their driver does not look for fences at all."""
    produce(site.source, site.topic, numbered(_BEFORE))
    with running_inside(site.file(far=True)) as mirror:
        await_copied(site, mirror)

        cut(site.proxy)
        produce(site.source, site.topic, numbered(_LATE, start=_BEFORE))
        wait_until(lambda: bool(mirror.stalls), "the lane to stall")
        site.fail_over()
        produce(site.target, site.mirrored, numbered(_CLIENTS, start=1_000))
        before = site.values()
        heal(site.proxy)
        wait_until(lambda: reasons(mirror) == {StallReason.FENCED}, "the lane to be fenced")
        time.sleep(0.5)

        assert len(before) == _BEFORE + _CLIENTS
        assert site.values() == before
        assert "failed over" in mirror.stalls[0]


def await_copied(site: Site, mirror: InsideMirror) -> None:
    def are_there() -> bool:
        try:
            return len(site.values()) == _BEFORE
        except (KeyError, BrokerError):
            return False

    wait_until(are_there, f"{_BEFORE} records", timeout_s=30)


def is_fenced(site: Site, mirror: InsideMirror) -> bool:
    return isinstance(mirror.leaderships[site.flow], Fenced)


def reasons(mirror: InsideMirror) -> set[StallReason]:
    states = [at.state for at in mirror.slots.progress().values()]
    return {state.reason for state in states if isinstance(state, Stalled)}
