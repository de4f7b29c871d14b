"""A machine whose wall clock jumps by hours: the mirror on it leads on, and copies exactly."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from heliograph.ledger.leadership import Leading
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.inside import InsideMirror, running_inside
from tests.kit.mirror import RECORDS_ONLY, Route, lasting_topic, route, write_config
from tests.kit.records import (
    Transaction,
    end_offsets,
    numbered,
    produce_transactions,
    read_all,
)
from tests.kit.topics import delete_records_before

HOUR_MS = 3_600_000
LEASE_S = 3.0
WRITTEN = 30


class JumpingClock:
    """Stands in for the module `time`: the wall clock is off by `skew_ms`, the other is not."""

    def __init__(self) -> None:
        self.skew_ms = 0

    def time_ns(self) -> int:
        return time.time_ns() + self.skew_ms * 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> JumpingClock:
    jumping = JumpingClock()
    monkeypatch.setattr("heliograph.clock.time", jumping)
    return jumping


def _route(pair: dict[str, LocalCluster], name: str, folder: Path) -> Route:
    flow = f"a-{name}->b-{name}"
    file = write_config(
        folder / "mm2.properties",
        {f"a-{name}": pair["A"], f"b-{name}": pair["B"]},
        {flow: {"topics": name, "on.retention.overrun": "skip"}},
        top={**RECORDS_ONLY, "driver.lease.ms": str(int(LEASE_S * 1000))},
    )
    return route(file, (f"a-{name}", pair["A"]), (f"b-{name}", pair["B"]))


def test_a_wall_clock_that_jumps_ends_no_lease_and_no_record_is_lost_or_repeated(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path, clock: JumpingClock
) -> None:
    """Brokers refuse records from an hour ahead of their own clock, unless told otherwise."""
    name = lasting_topic(pair["A"], topic("jumps"))
    lane = _route(pair, name, tmp_path)
    written = 0

    with running_inside(lane.config, leased=True) as driver:
        for skew_h in (3, -24 * 40, 24 * 400):
            clock.skew_ms = skew_h * HOUR_MS
            written = _write(lane, name, written)
            lane.await_records(name, written)
            _assert_leads(driver, lane)
    # The next driver's clock is behind all that the ledger says, and the source has lost records.
    clock.skew_ms = -HOUR_MS * 24
    lost = range(written, written + 10)
    ends = end_offsets(lane.source, name)
    written = _write(lane, name, written)
    delete_records_before(lane.source, name, {0: ends[0] + len(lost)})
    with running_inside(lane.config, leased=True) as driver:
        lane.await_records(name, written - len(lost))
        clock.skew_ms = 3 * HOUR_MS
        written = _write(lane, name, written)
        lane.await_records(name, written - len(lost))
        _assert_leads(driver, lane)

    (found,) = read_all(lane.target, lane.renamed(name)).values()
    wanted = [each.key for number, each in enumerate(numbered(written)) if number not in lost]
    assert [record.key for record in found] == wanted
    lane.assert_exact_map(name, gaps=False)  # the first offsets of the source had records
    (loss,) = lane.lane_records(name)[0].losses
    assert loss.lost.end == ends[0] + len(lost)


def _assert_leads(driver: InsideMirror, lane: Route) -> None:
    """Longer than the lease, so that it was renewed by this clock."""
    until_s = time.monotonic() + LEASE_S * 1.2
    while time.monotonic() < until_s:
        assert driver.leaderships[lane.flow] == Leading()
        assert driver.stalls == []
        time.sleep(0.1)


def _write(lane: Route, name: str, start: int) -> int:
    """Records and an aborted transaction: the gap takes a write to the ledger."""
    made = [
        Transaction(records=numbered(WRITTEN, start=start)),
        Transaction(records=numbered(3, start=10**6), commit=False),
    ]
    produce_transactions(lane.source, name, made, transactional_id=f"t-{name}")
    return start + WRITTEN
