"""The benchmark walks its whole path on real brokers with sizes too small to mean anything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from heliograph.ledger.segments import SEGMENT_RUNS
from heliograph_tools.bench.copying import CopyRun, run_copy
from heliograph_tools.bench.drilling import DrillRun
from heliograph_tools.bench.filling import build_batch, fill_topic
from heliograph_tools.bench.latency import PacedProducer, TimingConsumer
from heliograph_tools.bench.ledger_years import run_ledger
from heliograph_tools.bench.partitions import Look, lags_s
from heliograph_tools.bench.raw import RawConnection
from heliograph_tools.bench.report import quick_json, verdicts
from heliograph_tools.bench.rows import (
    ROWS,
    CopyRow,
    LatencyRow,
    LedgerRow,
    System,
    choose_rows,
    run_order,
)
from heliograph_tools.bench.stage import Stage, open_stage
from heliograph_tools.bench.suite import RowResult
from heliograph_tools.bench.watch import wait_until
from tests.kit.clusters import FAST_JAVA


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(*FAST_JAVA)
        with open_stage(tmp_path_factory.mktemp("bench")) as opened:
            yield opened


@pytest.fixture(scope="module")
def small_row() -> CopyRow:
    (row,) = choose_rows(("plain_16k",), 0.002)
    assert isinstance(row, CopyRow)
    return row


@pytest.fixture(scope="module")
def full_topic(stage: Stage, small_row: CopyRow) -> str:
    stage.create_source_topic("full-small", small_row.partitions)
    fill_topic(stage.source_address, "full-small", small_row)
    return "full-small"


def test_a_topic_is_filled_with_exactly_the_records_asked_for(
    stage: Stage, small_row: CopyRow, full_topic: str
) -> None:
    with RawConnection(stage.source_address) as connection:
        ends = connection.end_offsets(full_topic, small_row.partitions)

    assert ends == [small_row.records // small_row.partitions] * small_row.partitions


def test_a_one_record_batch_row_makes_as_many_batches_as_records(stage: Stage) -> None:
    (row,) = choose_rows(("one_record",), 0.002)
    assert isinstance(row, CopyRow)
    stage.create_source_topic("full-singles", row.partitions)

    fill_topic(stage.source_address, "full-singles", row)

    with RawConnection(stage.source_address) as connection:
        ends = connection.end_offsets("full-singles", row.partitions)
        (first,) = connection.fetch("full-singles", {0: 0}, 100, 64 * 1024)
    one = build_batch(0, row.record_bytes, row.batch_bytes, row.codec)
    assert sum(ends) == row.records
    assert one.records == 1
    assert len(first.records) == ends[0] * len(one.payload)


def test_the_floor_fetches_and_produces_all_records(
    stage: Stage, small_row: CopyRow, full_topic: str
) -> None:
    run = run_copy(stage, small_row, full_topic, System.FLOOR, 0, {})

    assert run.floor is not None
    assert run.records_per_s == min(run.floor.values()) > 0


def test_every_record_sent_at_a_pace_is_timed_once(stage: Stage) -> None:
    row = LatencyRow(name="latency", records_per_s=500)
    stage.create_source_topic("paced", row.partitions)

    with (
        TimingConsumer(stage.source_address, "paced", row.partitions) as consumer,
        PacedProducer(stage.source_address, "paced", row) as producer,
    ):
        wait_until(lambda: producer.sent >= 500, lambda: None, "records sent")
        wait_until(lambda: len(consumer.delays_ms) >= 500, lambda: None, "records seen")

    assert (producer.failure, consumer.failure, consumer.repeated) == (None, None, 0)
    assert set(range(500)) <= set(consumer.delays_ms)
    assert min(consumer.delays_ms.values()) > 0


def test_a_ledger_is_read_by_a_slot_and_by_the_failover_command(stage: Stage) -> None:
    row = LedgerRow(
        name="ledger", runs=3 * SEGMENT_RUNS, lanes=4, head_ticks=3, groups=3, quiet_s=0.0
    )

    run = run_ledger(stage, row, System.HELIOGRAPH, 0)

    assert run.runs == row.runs
    assert (run.moves, run.exact_moves) == (15, 15)
    assert (run.command_moves, run.command_exact_moves) == (15, 15)
    assert min(run.slot_rss_mb, run.failover_rss_mb, run.command_rss_mb) > 0
    assert 0 < run.command_rto_s < run.command_s
    assert [name for name in stage.topics() if "years0" in name] == []


def test_a_run_leaves_no_topic_of_its_own_behind(
    stage: Stage, small_row: CopyRow, full_topic: str
) -> None:
    run_copy(stage, small_row, full_topic, System.FLOOR, 7, {})

    assert [name for name in stage.topics() if "floor7" in name] == []


def test_lag_is_counted_from_the_last_look_that_the_target_has_caught_up_with() -> None:
    looks = [
        Look(source_s=0.0, target_s=0.1, source_ends=(10,), target_ends=(10,)),
        Look(source_s=1.0, target_s=1.1, source_ends=(20,), target_ends=(10,)),
        Look(source_s=2.0, target_s=2.1, source_ends=(30,), target_ends=(20,)),
        Look(source_s=3.0, target_s=3.1, source_ends=(30,), target_ends=(30,)),
    ]

    assert lags_s(looks) == [[0.0], [1.1], [pytest.approx(1.1)], [0.0]]


def test_every_other_round_runs_backwards() -> None:
    systems = (System.HELIOGRAPH, System.MM2_TUNED, System.FLOOR)

    orders = [run_order(systems, index) for index in range(3)]

    assert orders == [systems, systems[::-1], systems]


def test_the_quick_result_has_the_four_systems_and_their_medians() -> None:
    row = ROWS[0]
    assert isinstance(row, CopyRow)
    rates = {
        System.HELIOGRAPH: (900.4, 1_000.4, 8_000.0),
        System.MM2_DEFAULT: (100.0,),
        System.MM2_TUNED: (200.0,),
        System.FLOOR: (1_100.0,),
    }
    runs = tuple(
        CopyRun(system=system, round_index=i, records=1, seconds=1.0, records_per_s=rate)
        for system, values in rates.items()
        for i, rate in enumerate(values)
    )
    result = RowResult(row=row, runs=runs, failures=())

    quick = quick_json([result])
    reached = {verdict.goal: verdict.reached for verdict in verdicts(result)}

    assert quick == {
        "plain_16k": {"heliograph": 1000, "mm2_default": 100, "mm2_tuned": 200, "floor": 1100}
    }
    assert reached == {"8 x mm2_default": True, "4 x mm2_tuned": True, "0.85 x floor": True}


def test_a_drill_may_cost_a_tenth_of_the_p99_and_must_pass() -> None:
    (row,) = choose_rows(("drill",), 1.0)
    run = DrillRun(
        system=System.HELIOGRAPH,
        round_index=0,
        drills=9,
        drill_s=2.0,
        problems=(),
        quiet_seen=1_000,
        quiet_p50_ms=2.0,
        quiet_p99_ms=10.0,
        drilled_seen=1_000,
        drilled_p50_ms=2.0,
        drilled_p99_ms=10.9,
        missing=0,
        repeated=0,
    )
    slower, failed = replace(run, drilled_p99_ms=11.5), replace(run, problems=("lost",))

    told = [
        verdicts(RowResult(row=row, runs=(each,), failures=())) for each in (run, slower, failed)
    ]

    assert [verdict.reached for (verdict,) in told] == [True, False, False]
    assert told[0][0].got == "1.090 x, 0 drills failed"
