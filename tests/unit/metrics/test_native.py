from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from heliograph.audit.findings import FindingKind
from heliograph.audit.plan import AuditEndNote
from heliograph.driver.periodic import JobFigures
from heliograph.health.alarms import Alarm
from heliograph.health.conditions import Kind
from heliograph.health.note import AlarmsNote, Silence
from heliograph.health.sight import Certificate, Measured, WatchFigures
from heliograph.health.sight import LedgerFacts as HealthFacts
from heliograph.ledger.canary_note import CanaryNote, Track
from heliograph.ledger.drill_note import LastDrill
from heliograph.ledger.leadership import Standby
from heliograph.metrics.definitions import LANE_METRICS, NATIVE, OTHERS
from heliograph.metrics.exposition import accepts_gzip, exposed, wants_openmetrics
from heliograph.metrics.families import Family
from heliograph.metrics.gather import FlowLook, LedgerFacts
from heliograph.metrics.native import native_families
from heliograph.model import Paused
from tests.unit.metrics.looks import AB, NOW_MS, STALLED, at, looked

PAGE = (Path(__file__).parents[3] / "docs/reference/metrics.md").read_text()

CANARY = CanaryNote(
    at_ms=NOW_MS,
    interval_s=60,
    sequence=7,
    sent_ms=NOW_MS - 2_000,
    waiting_ms=NOW_MS - 2_000,
    tracks=(
        Track(
            flow="A->B",
            source="A",
            sequence=6,
            sent_ms=NOW_MS - 62_000,
            seen_ms=NOW_MS - 61_900,
            latency_ms=100,
            hop_ms=40,
            seen=6,
            missing=1,
        ),
    ),
)
ALARMS = AlarmsNote(
    alarms=(
        Alarm(kind=Kind.LAG, subject="orders", raised_ms=1),
        Alarm(kind=Kind.LAG, subject="users", raised_ms=1),
        Alarm(kind=Kind.LEDGER, raised_ms=1),
        Alarm(kind=Kind.STALL, subject="orders", raised_ms=1, ended_ms=2),
    )
)
SILENCE = Silence(id="0123456789", alarm="ledger", who="ann", at_ms=0, until_ms=2 * NOW_MS)
MEASURED = WatchFigures(
    measured=Measured(
        ledger_bytes=4_096,
        clocks_s={"B": 1.5},
        certificates=(Certificate(whose="the client of B", ends_ms=NOW_MS + 1_000),),
    ),
    tombstones_s=3_600.0,
)


def values(families: list[Family], name: str) -> dict[tuple[str, ...], object]:
    (family,) = (each for each in families if each.definition.name == name)
    return {tuple(labels): value for labels, value in family.rows}


def text_of(body: bytes) -> list[Metric]:
    return list(read_text(body.decode()))


def openmetrics_of(body: bytes) -> list[Metric]:
    return list(read_openmetrics(body.decode()))  # type: ignore[no-untyped-call]


def everything() -> list[Family]:
    facts = LedgerFacts(
        losses=1,
        lost_records=5,
        letters=3,
        lanes=2,
        entries=9,
        unreadable_records=0,
        standbys=1,
        drill=LastDrill(at_ms=1_000, verdict="pass", reasons=(), rto_s=2.5),
        audit=AuditEndNote(at_ms=2_000, records=7, findings={next(iter(FindingKind)): 3}),
        health=HealthFacts(canary=CANARY),
        alarms=(ALARMS, (SILENCE,)),
    )
    watching = JobFigures(flow=AB, what="alarms", took_s=0.1, failures=0, measured=MEASURED)
    mirror = looked(at(0, lag=5), at(1, state=STALLED), ledgers={AB: facts})
    return native_families(replace(mirror, jobs=(*mirror.jobs, watching)), lanes=True, topics_max=9)


def test_what_lanes_tell_is_summed_by_topic() -> None:
    families = native_families(looked(at(0), at(1, lag=5)), lanes=False, topics_max=9)

    topic = ("A", "B", "orders")
    assert values(families, "heliograph_records_total") == {topic: 20}
    assert values(families, "heliograph_lag_records") == {
        (*topic, "read"): 5,
        (*topic, "acknowledged"): 5,
        (*topic, "committed"): 9,
    }
    assert values(families, "heliograph_lag_bytes")[(*topic, "acknowledged")] == 500
    assert not any(each.definition.name.startswith("heliograph_lane_") for each in families)


def test_what_is_not_known_has_no_series() -> None:
    families = native_families(looked(at(0, state=Paused()), at(1)), lanes=True, topics_max=9)

    lanes = values(families, "heliograph_lane_lag_records")
    assert ("A", "B", "orders", "1", "acknowledged") in lanes
    assert ("A", "B", "orders", "0", "acknowledged") not in lanes
    assert "heliograph_lag_records" not in {each.definition.name for each in families}


def test_topics_past_the_bound_are_one_series_and_stalled_ones_come_first() -> None:
    lanes = [at(0, f"t{number}", lag=number) for number in range(10)]
    lanes.append(at(0, "z-stalled", state=STALLED))

    families = native_families(looked(*lanes), lanes=True, topics_max=3)

    records = values(families, "heliograph_records_total")
    assert set(records) == {
        ("A", "B", "t0"),
        ("A", "B", "t1"),
        ("A", "B", "z-stalled"),
        ("A", "B", OTHERS),
    }
    assert records["A", "B", OTHERS] == 80
    lag = values(families, "heliograph_lag_records")["A", "B", OTHERS, "acknowledged"]
    assert lag == sum(range(2, 10))
    assert values(families, "heliograph_topics_left_out") == {(): 8}


def test_promises_are_counters() -> None:
    families = everything()

    flow = ("A", "B")
    assert values(families, "heliograph_stalls_total") == {(*flow, "corrupt batch"): 1}
    assert values(families, "heliograph_stalled_lanes") == {(*flow, "corrupt batch"): 1}
    assert values(families, "heliograph_resyncs_total") == {flow: 3}
    assert values(families, "heliograph_repeats_refused_batches_total") == {flow: 2}
    assert values(families, "heliograph_map_corrections_total") == {flow: 1}
    assert values(families, "heliograph_lost_records_total") == {flow: 5}


def test_a_flow_has_its_verdict_its_alarms_and_its_canaries() -> None:
    families = everything()

    flow = ("A", "B")
    words = values(families, "heliograph_flow_verdict")
    assert [labels[2] for labels, value in words.items() if value] == ["stalled"]
    assert len(words) == 4
    alarms = values(families, "heliograph_alarms")
    assert alarms[(*flow, "lag", "false")] == 2
    assert alarms[(*flow, "ledger", "true")] == 1
    assert sum(int(str(value)) for value in alarms.values()) == 3
    assert values(families, "heliograph_canary_late_seconds") == {flow: 2.0}
    assert values(families, "heliograph_canary_latency_seconds") == {(*flow, "A->B"): 0.1}
    assert values(families, "heliograph_canary_missing") == {(*flow, "A->B"): 1}
    assert values(families, "heliograph_ledger_bytes") == {flow: 4_096}
    assert values(families, "heliograph_clock_ahead_seconds") == {(*flow, "B"): 1.5}


def test_a_flow_that_another_driver_leads_has_no_verdict_here() -> None:
    mirror = looked(at(0))
    about = FlowLook(settings=mirror.of_flows[AB].settings, leadership=Standby())

    elsewhere = native_families(replace(mirror, of_flows={AB: about}), lanes=False, topics_max=9)
    unread = native_families(replace(mirror, ledgers={}), lanes=False, topics_max=9)

    for families in (elsewhere, unread):
        assert "heliograph_flow_verdict" not in {each.definition.name for each in families}
    assert "heliograph_alarms" not in {each.definition.name for each in unread}


def test_links_and_slots_tell_what_the_mission_asks_for() -> None:
    families = everything()

    assert values(families, "heliograph_link_request_bytes_max")["A", "from"] == 300
    assert values(families, "heliograph_link_batch_bytes_max")["B", "to"] == 200
    assert values(families, "heliograph_link_throttle_seconds_total")["A", "from"] == 0.02
    assert values(families, "heliograph_link_retried_batches_total")["B", "to"] == 2
    assert values(families, "heliograph_slot_io_ratio") == {("0",): pytest.approx(0.1)}
    assert values(families, "heliograph_slot_io_wait_ratio") == {("0",): pytest.approx(0.65)}


def test_every_metric_that_is_listed_is_told_by_a_mirror_that_has_all_to_tell() -> None:
    # With a stalled lane, of which nobody has looked at the source, the lag of all is unknown.
    well = native_families(looked(at(0, lag=5)), lanes=False, topics_max=9)
    told = {each.definition.name for each in (*everything(), *well)}
    listed = {each.name for each in (*NATIVE, *LANE_METRICS)}

    # These need what one look at a lane does not give: two samples, or a source that deletes.
    later = re.compile(r"_(trend|per_second|overrun_seconds)$|catch_up_seconds$|lag_seconds$")
    assert {name for name in listed - told if not later.search(name)} == set()


@pytest.mark.parametrize("definition", (*NATIVE, *LANE_METRICS), ids=lambda each: each.name)
def test_the_page_has_every_metric_with_its_kind_labels_and_meaning(definition: object) -> None:
    from heliograph.metrics.families import Definition

    assert isinstance(definition, Definition)
    labels = ", ".join(f"`{label}`" for label in definition.labels) or "–"
    row = f"| `{definition.name}` | {definition.kind} | {labels} | {definition.help} |"
    assert row in PAGE.splitlines(), row


def test_the_page_names_no_metric_that_does_not_exist() -> None:
    named = set(re.findall(r"^\| `(heliograph_\w+)` \|", PAGE, re.MULTILINE))

    assert named == {each.name for each in (*NATIVE, *LANE_METRICS)}


def test_both_formats_say_the_same() -> None:
    families = everything()

    text = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_of(exposed(families, openmetrics=False))
        for sample in family.samples
    }
    openmetrics = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in openmetrics_of(exposed(families, openmetrics=True))
        for sample in family.samples
    }
    assert text == openmetrics
    labels = (("source", "A"), ("target", "B"), ("topic", "orders"))
    assert text["heliograph_latency_seconds_count", labels] == 8.0
    assert text["heliograph_latency_seconds_sum", labels] == 0.064
    assert text["heliograph_latency_seconds_bucket", (("le", "0.01"), *labels)] == 8.0
    assert text["heliograph_latency_seconds_bucket", (("le", "0.005"), *labels)] == 0.0


def test_topics_named_like_markup_are_only_labels() -> None:
    name = 'a"}\n<b>\\'

    families = native_families(looked(at(0, name)), lanes=False, topics_max=9)

    for openmetrics, read in ((False, text_of), (True, openmetrics_of)):
        found = read(exposed(families, openmetrics=openmetrics))
        topics = {
            sample.labels["topic"]
            for family in found
            for sample in family.samples
            if "topic" in sample.labels
        }
        assert topics == {name}


def test_openmetrics_is_given_to_those_who_accept_it() -> None:
    assert wants_openmetrics("application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert not wants_openmetrics("text/plain")


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip; q=0.00", False),
        ("identity", False),
        ("gzipped", False),
        ("", False),
    ],
)
def test_answers_are_zipped_for_those_who_take_it(header: str, expected: bool) -> None:
    assert accepts_gzip(header) is expected
