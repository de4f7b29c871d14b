"""Every metric of Heliograph's own: name, kind, labels, meaning. Values; runs anywhere.

`docs/reference/metrics.md` has the same rows, which a test compares. Names end in their unit.
"""

from __future__ import annotations

from typing import Final

from heliograph.metrics.families import Definition, Kind

FLOW: Final = ("source", "target")
TOPIC: Final = (*FLOW, "topic")
PIPELINE: Final = ("source", "target", "pipeline")
LANE: Final = (*TOPIC, "partition")
LINK: Final = ("cluster", "way")
SLOT: Final = ("slot",)

OTHERS: Final = "(others)"
"""The topic of the series that stands for all topics beyond `metrics.topics.max`."""


def _all(labels: tuple[str, ...], kind: Kind, **meanings: str) -> tuple[Definition, ...]:
    return tuple(
        Definition(f"heliograph_{name}", kind, labels, text) for name, text in meanings.items()
    )


def _lag(labels: tuple[str, ...], prefix: str) -> tuple[Definition, ...]:
    """The same for topics, flows and lanes."""
    by_position = (*labels, "position")
    return tuple(
        Definition(f"heliograph_{prefix}{name}", "gauge", these, text)
        for name, these, text in (
            (
                "lag_records",
                by_position,
                "Records between a position and the end of the source; position is read, "
                "acknowledged or committed.",
            ),
            (
                "lag_bytes",
                by_position,
                "The same in bytes, estimated from records so far.",
            ),
            ("lag_seconds", by_position, "Age of the oldest record that waits; 0 when none does."),
            (
                "catch_up_seconds",
                labels,
                "Time until nothing waits at the present rates; +Inf when that is never.",
            ),
            (
                "retention_overrun_seconds",
                labels,
                "Earliest time until the source deletes what waits; +Inf when that is never.",
            ),
            ("records_per_second", labels, "Records acknowledged by the target, over 30 s."),
            ("source_records_per_second", labels, "Records written to the source, over 30 s."),
            (
                "lag_trend",
                labels,
                "Whether the lag grows (1), stays (0) or shrinks (-1), over a minute.",
            ),
        )
    )


TOPIC_METRICS: Final = (
    *_all(
        TOPIC,
        "counter",
        records_total="Records acknowledged by the target.",
        bytes_total="Bytes of batches acknowledged by the target.",
        received_bytes_total="Bytes of records that came from the source, in vain or not.",
        sent_bytes_total="Bytes of batches that left for the target, each try counted.",
        foreign_records_total="Records in mirrored partitions that the flow did not write.",
        unknown_control_records_total="Control records of unknown kinds, which are skipped.",
    ),
    *_all(
        TOPIC,
        "histogram",
        latency_seconds="From a record's timestamp to its acknowledgement by the target, by "
        "batch, of records up to a minute old.",
    ),
    *_lag(TOPIC, ""),
    *_all((*TOPIC, "motion"), "gauge", lanes="Lanes by what they do about their lag."),
)
LANE_METRICS: Final = (
    *_all(
        LANE,
        "counter",
        lane_records_total="Records of one lane acknowledged by the target.",
        lane_bytes_total="Bytes of one lane acknowledged by the target.",
    ),
    *_lag(LANE, "lane_"),
    *_all((*LANE, "reason"), "gauge", lane_stalled="1 while the lane is stalled, with the reason."),
)
FLOW_METRICS: Final = (
    *_lag(FLOW, "flow_"),
    *_all(
        (*FLOW, "state"),
        "gauge",
        flow_state="1 for what this driver is to the flow: leading, standby, lapsed or fenced.",
    ),
    *_all(
        FLOW,
        "gauge",
        flow_problem="1 while the flow, a topic or a job of it does not work.",
        flow_stuck_lanes="Lanes with records that wait and none acknowledged for 30 s.",
        flow_standbys="Other drivers that would take over.",
    ),
    *_all((*FLOW, "reason"), "gauge", stalled_lanes="Lanes that are stalled, by reason."),
    *_all((*FLOW, "reason"), "counter", stalls_total="Times a lane stalled, by reason."),
    *_all(
        FLOW,
        "counter",
        resyncs_total="Times a lane went back to the target's log to find its place again.",
        repeats_refused_batches_total="Batches the target refused as not the next: no repeats.",
        map_corrections_total="Times the offset map was put right by the target's log.",
        ledger_writes_total="Writes of positions to the ledger that became durable.",
        ledger_write_seconds_total="How long they took together.",
        losses_total="Stretches of source offsets that were gone before they could be copied.",
        lost_records_total="Source offsets in them.",
        dead_letters_total="Records that could not be mirrored and are dead letters.",
    ),
    *_all((*FLOW, "verb"), "gauge", decisions="Decisions of operators that hold, by verb."),
    *_all(
        FLOW,
        "gauge",
        ledger_entries="Entries of the ledger that count; its topic has more until compaction.",
        ledger_lanes="Lanes the ledger knows.",
        ledger_unreadable_records="Records of lanes in the ledger that could not be read.",
        drill_passed="1 if the last drill passed, 0 if not.",
        drill_timestamp_seconds="When it was.",
        drill_rto_seconds="How long groups would have been without a cluster in it.",
        drill_lost_records="Records it found missing.",
        audit_timestamp_seconds="When the last audit came to its end.",
        audit_records="Records it compared.",
    ),
    *_all((*FLOW, "kind"), "gauge", audit_findings="Differences it found, by kind."),
    *_all(
        (*FLOW, "job"),
        "gauge",
        job_seconds="How long the last step of a periodic job took.",
    ),
    *_all((*FLOW, "job"), "counter", job_failures_total="Steps of a periodic job that failed."),
)
HEALTH_METRICS: Final = (
    *_all(
        (*FLOW, "verdict"),
        "gauge",
        flow_verdict="1 for the word that is true of the flow: healthy, behind, stalled or losing.",
    ),
    *_all(
        (*FLOW, "alarm", "silenced"),
        "gauge",
        alarms="Alarms that are open, by kind, and whether they are silenced.",
    ),
    *_all(
        FLOW,
        "gauge",
        canary_late_seconds="How long the oldest canary is under way, or the next one overdue.",
        canary_interval_seconds="How often one is sent.",
    ),
    *_all((*FLOW, "canaries"), "counter", canary_arrived_total="Canaries that arrived."),
    *_all(
        (*FLOW, "canaries"),
        "gauge",
        canary_latency_seconds="How long the last one took since it was sent.",
        canary_hop_seconds="Of that, the part over this flow, where it was seen on its source too.",
        canary_missing="Canaries that did not come, though later ones did.",
        canary_out_of_order="Canaries that came after later ones.",
        canary_repeated="Canaries that came twice.",
    ),
    *_all(
        FLOW,
        "gauge",
        flow_tombstones_seconds="Earliest time until compaction deletes tombstones that wait; "
        "+Inf when that is never.",
        ledger_bytes="Size of the ledger on its leader's disk.",
    ),
    *_all(
        (*FLOW, "clock"),
        "gauge",
        clock_ahead_seconds="How far the clock of a cluster or of a slot's machine is ahead of the "
        "driver's.",
    ),
    *_all(
        (*FLOW, "certificate"),
        "gauge",
        certificate_end_timestamp_seconds="When a certificate of a broker, a client or the REST "
        "server ends.",
    ),
)
PIPELINE_METRICS: Final = (
    *_all(
        (*PIPELINE, "state"),
        "gauge",
        pipeline_state="1 for how the pipeline is: starting, running, stalled, paused or ended.",
    ),
    *_all(
        PIPELINE,
        "gauge",
        pipeline_lag_records="Records at the source behind what was read.",
        pipeline_records_per_second="Records read in the last batch that had some.",
        pipeline_batch_seconds="How long the last batch took.",
        pipeline_batch_timestamp_seconds="When it began.",
    ),
    *_all(
        PIPELINE,
        "counter",
        pipeline_records_total="Records read by this driver.",
        pipeline_rows_total="Rows written by it.",
        pipeline_left_out_total="Rows that could not be written, as on.error says.",
        pipeline_restarts_total="Times it was started again after it had ended.",
    ),
)
LINK_METRICS: Final = (
    *_all(
        LINK,
        "counter",
        link_requests_total="Fetches from, or appends to, a cluster that were answered.",
        link_failed_requests_total="Of them, those without a good answer; they are tried again.",
        link_bytes_total="Bytes of answers to fetches, and of batches appended.",
        link_batches_total="Batches sent, each try counted.",
        link_retried_batches_total="Of them, those not acknowledged, which are tried again.",
        link_answer_seconds_total="From requests to the first byte of their answers.",
        link_throttle_seconds_total="For which the cluster says it held requests back by quota.",
    ),
    *_all(
        LINK,
        "gauge",
        link_request_bytes_max="The largest fetch or append of the last 30 s.",
        link_batch_bytes_max="The largest batch appended in the last 30 s.",
        link_answer_seconds_max="The longest wait for an answer in the last 30 s.",
        link_requests_in_flight="Requests sent and not answered.",
    ),
)
SLOT_METRICS: Final = (
    *_all(("state",), "gauge", slots="Slots by state: starting, running, silent, ended."),
    *_all(SLOT, "counter", slot_restarts_total="Times the slot was lost and started anew."),
    *_all(
        (*SLOT, "mode"),
        "counter",
        slot_cpu_seconds_total="CPU of the slot, user or system.",
    ),
    *_all(
        SLOT,
        "gauge",
        slot_lanes="Lanes the slot carries.",
        slot_silent_seconds="Since the slot was last heard.",
        slot_io_ratio="Share of the last second the slot spent in the kernel: reads and writes.",
        slot_io_wait_ratio="Share of the last second the slot waited for sockets.",
        slot_kept_bytes="Bytes fetched and not acknowledged.",
        slot_bytes_max="Most bytes the slot may keep.",
    ),
)
DRIVER_METRICS: Final = (
    *_all(("version",), "gauge", build_info="1, with the version."),
    *_all(
        (),
        "gauge",
        start_time_seconds="When the driver began to serve.",
        topics_left_out="Topics that have no series of their own.",
        ledgers_unread="Flows whose ledger could not be read for these figures.",
    ),
    *_all((), "counter", driver_cpu_seconds_total="CPU of the driver's Python process."),
    *_all(
        (),
        "counter",
        metrics_made_total="Times these figures were made; between two they are kept.",
    ),
    *_all((), "gauge", metrics_seconds="How long making them took the last time."),
)
NATIVE: Final = (
    *DRIVER_METRICS,
    *FLOW_METRICS,
    *HEALTH_METRICS,
    *TOPIC_METRICS,
    *PIPELINE_METRICS,
    *LINK_METRICS,
    *SLOT_METRICS,
)
"""Always there; `LANE_METRICS` only on request."""
