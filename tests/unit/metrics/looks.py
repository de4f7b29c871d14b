"""A mirror that only seems to run, as the collector sees it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from heliograph.config.schema import FlowConfig
from heliograph.driver.lag_book import facts_of
from heliograph.driver.live import RunStatus
from heliograph.driver.periodic import JobFigures
from heliograph.engine.jvm import JvmFigures
from heliograph.engine.supervisor import SlotHealth, SlotState
from heliograph.engine.tally import SlotTally
from heliograph.lag.folding import lag_report
from heliograph.lag.lanes import lane_lag
from heliograph.ledger.leadership import Leading
from heliograph.ledger.pipeline_note import PipelineFigures, PipelineState
from heliograph.metrics.gather import FlowLook, LedgerFacts, LinkLook, Looked
from heliograph.model import (
    LATENCY_BUCKETS_MS,
    ClusterAlias,
    Copying,
    FlowFigures,
    FlowId,
    Idle,
    LaneId,
    LaneProgress,
    LinkFigures,
    SlotFigures,
    SlotId,
    Stalled,
    StallReason,
    TopicName,
    TopicPartition,
)

A, B = ClusterAlias("A"), ClusterAlias("B")
AB = FlowId(source=A, target=B)
STALLED = Stalled(reason=StallReason.CORRUPT_BATCH, detail="bad CRC", since_ms=5)
NOW_MS = 1_700_000_000_000


def at(partition: int, topic: str = "orders", *, lag: int = 0, **more: Any) -> LaneProgress:
    lane = LaneId(flow=AB, source=TopicPartition(topic=TopicName(topic), partition=partition))
    latency = [0] * (len(LATENCY_BUCKETS_MS) + 1)
    latency[3] = 4
    known: dict[str, Any] = {
        "state": Copying() if lag else Idle(),
        "position": 10,
        "source_next_offset": 10,
        "source_end_offset": 10 + lag,
        "source_start_offset": 0,
        "target_next_offset": 10,
        "source_read_offset": 10,
        "source_noted_offset": 8,
        "records": 10,
        "bytes": 1_000,
        "received_bytes": 1_100,
        "sent_bytes": 1_050,
        "last_timestamp_ms": NOW_MS - 2_000,
        "latency_counts": tuple(latency),
        "latency_ms_sum": 32,
    }
    return LaneProgress(lane=lane, **{**known, **more})


def tally(*lanes: LaneProgress) -> SlotTally:
    found = SlotTally()
    found.lanes.sample({each.lane: each for each in lanes})
    links = (
        LinkFigures(
            cluster=A,
            way="from",
            requests=10,
            bytes=1_100,
            answer_ms=50,
            throttle_ms=20,
            request_bytes_max=300,
            requests_in_flight=1,
        ),
        LinkFigures(
            cluster=B,
            way="to",
            requests=5,
            failed=1,
            bytes=1_050,
            batches=8,
            retried_batches=2,
            answer_ms=25,
            batch_bytes_max=200,
            request_bytes_max=400,
            answer_ms_max=9,
        ),
    )
    flows = (
        FlowFigures(
            flow=AB,
            stalls={"corrupt batch": 1},
            lookups=3,
            refused_batches=2,
            corrections=1,
            notes=4,
            note_ms=20,
        ),
    )
    figures = SlotFigures(
        elapsed_s=2.0,
        user_s=0.5,
        system_s=0.2,
        kept_bytes=100,
        bytes_max=1_000,
        links=links,
        flows=flows,
    )
    found.heard(SlotId(0), 1, figures)
    return found


def looked(*lanes: LaneProgress, **more: Any) -> Looked:
    slot = SlotHealth(
        slot=SlotId(0),
        state=SlotState.RUNNING,
        generation=1,
        replaced=2,
        attempt="1",
        pid=1,
        lanes=len(lanes),
        silent_ms=10,
        detail="",
    )
    status = RunStatus(progress={each.lane: each for each in lanes}, slots=(slot,), problems={})
    lags = [
        lane_lag(facts_of(each, None, heard=True), None, None, at_s=0.0, now_ms=NOW_MS)
        for each in lanes
    ]
    counted = more.pop("tally", None) or tally(*lanes)
    known = Looked(
        at_ms=NOW_MS,
        began_ms=NOW_MS - 60_000,
        flows=(AB,),
        status=status,
        lag=lag_report(lags, NOW_MS),
        placed={each.lane: SlotId(0) for each in lanes},
        totals=counted.lanes.totals(),
        links={
            key: LinkLook(
                counters=dict(link.counters),
                requests_in_flight=link.requests_in_flight,
                largest=link.largest_now(0.0),
            )
            for key, link in counted.links.items()
        },
        slot_counters={slot: dict(each) for slot, each in counted.slots.items()},
        slot_latest=counted.latest,
        slot_shares=dict(counted.shares),
        flow_counters={flow: dict(each) for flow, each in counted.flows.items()},
        stalls={flow: dict(each) for flow, each in counted.stalls.items()},
        ledgers={
            AB: LedgerFacts(
                losses=1,
                lost_records=5,
                letters=3,
                lanes=2,
                entries=9,
                unreadable_records=0,
                standbys=1,
                drill=None,
                audit=None,
            )
        },
        leaderships={AB: "leading"},
        of_flows={AB: FlowLook(settings=FlowConfig(id=AB, enabled=True), leadership=Leading())},
        decisions={AB: {"pause": 1}},
        jobs=(JobFigures(flow=AB, what="checkpoints", took_s=0.25, failures=1),),
        pipelines={
            (AB, "masked"): PipelineFigures(
                name="masked",
                state=PipelineState.RUNNING,
                at_ms=NOW_MS,
                batch=7,
                batch_ms=250,
                batch_at_ms=NOW_MS - 500,
                records_read=90,
                rows_written=80,
                records_per_s=360.0,
                lag_records=4,
            )
        },
        jvm=JvmFigures(
            heap_used_bytes=1,
            other_used_bytes=2,
            gc_seconds={"G1": 0.5},
            gc_counts={"G1": 3},
            threads=40,
        ),
        cpu_s=1.5,
    )
    return replace(known, **more)
