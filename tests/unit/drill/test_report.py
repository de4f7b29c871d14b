"""A drill's figures add up, its verdict has reasons, and its page shows all of it as text."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

from heliograph.drill.page import page
from heliograph.drill.report import (
    DrillOptions,
    SkippedRecords,
    UnplacedPartition,
    as_document,
)
from tests.unit.drill.drills import group, lane, missing, partition, report


def shown(text: str) -> str:
    """All that a reader of the page sees, on one line."""
    tree = ElementTree.fromstring(text)
    for style in tree.iter("style"):
        style.text = ""
    return re.sub(r"\s+", " ", " ".join(tree.itertext()))


def test_a_drill_without_findings_passes_with_rpo_and_rto() -> None:
    found = report()

    assert found.passed
    assert (found.rpo_records, found.rpo_s) == (321, 2.5)
    assert found.rto_s == 0.75
    assert (found.repeated_records, found.lost_records, found.compared_records) == (17, 0, 1_234)


def test_what_a_lane_does_not_tell_leaves_the_rpo_unknown() -> None:
    found = report(lanes=(lane(), lane("orders", 1, lag_records=None, lag_s=None)))

    assert (found.rpo_records, found.rpo_s) == (None, None)
    assert "? are" not in shown(page(found))
    assert found.passed


def test_lost_records_groups_without_a_place_and_stalled_lanes_fail_a_drill() -> None:
    unplaced = UnplacedPartition(source=partition("orders", 1), why="there is no checkpoint of it")
    skipped = SkippedRecords(source=partition("orders", 2), from_offset=90, records=2)
    bad = group(findings=(missing(),), unplaced=(unplaced,), skipped=(skipped,))

    found = report(groups=(bad,), lanes=(lane(state="stalled: corrupt batch", detail="bad"),))

    assert not found.passed
    assert found.reasons == (
        "orders-0 is stalled: corrupt batch: bad",
        "group billing: it would never read 2 mirrored records of orders-2, "
        "from source offset 90 on",
        "group billing: orders-1 has no place on the target: there is no checkpoint of it",
        "group billing: 3 missing: orders-0 offsets 4711 to 4713, "
        "on the target A.orders-0 offsets 4721 to 4723",
    )
    assert found.lost_records == 3


def test_limits_on_rpo_and_rto_fail_a_drill_that_is_beyond_them() -> None:
    strict = DrillOptions(rpo_s_max=2.0, rto_s_max=0.5)
    unknown = report(options=strict, lanes=(lane(lag_s=None),))

    assert report(options=DrillOptions(rpo_s_max=2.5, rto_s_max=0.75)).passed
    assert report(options=strict).reasons == (
        "RPO is 2.5 s, more than the 2 s that are allowed",
        "RTO is 0.8 s, more than the 0.5 s that are allowed",
    )
    assert "RPO in seconds is not known, and 2 s are allowed" in unknown.reasons


def test_a_group_with_many_findings_names_some_and_counts_the_rest() -> None:
    many = tuple(missing(offset=100 * number) for number in range(50))

    found = report(groups=(group(findings=many),))

    assert len(found.reasons) == 21
    assert found.reasons[-1] == "group billing: and 30 more"


def test_the_document_is_json_with_every_figure() -> None:
    found = json.loads(json.dumps(as_document(report(groups=(group(findings=(missing(),)),)))))

    assert found["verdict"] == "fail"
    assert found["rpo"] == {"records": 321, "seconds": 2.5}
    assert found["rto"] == {"seconds": 0.75}
    assert found["steps"][1]["seconds"] == 0.25
    (only,) = found["groups"]
    assert (only["repeated_records"], only["lost_records"]) == (17, 3)
    assert only["findings"][0] == {
        "kind": "missing",
        "topic": "orders",
        "partition": 0,
        "source_start": 4711,
        "source_end": 4714,
        "target_topic": "A.orders",
        "target_start": 4721,
        "target_end": 4724,
        "records": 3,
        "note": None,
    }


def test_the_page_shows_verdict_time_place_and_every_number() -> None:
    found = report(
        groups=(group(), group("audit", repeated_records=91, findings=(missing(),))),
        options=DrillOptions(rpo_s_max=5.0),
        notes=("no driver mirrors the flow at this moment",),
    )

    text = shown(page(found))

    for wanted in (
        "FAIL",
        "A->B",
        "2026-01-31 04:03:00 UTC",
        "driver-1",
        "2.50 s",
        "5 s are allowed",
        "321",
        "0.75 s",
        "0.25 s",
        "0.50 s",
        "9.00 s",
        "108",
        "1,234",
        "2,471",
        "orders-0 [4711, 4714)",
        "A.orders-0 [4721, 4724)",
        "no driver mirrors the flow at this moment",
    ):
        assert wanted in text, wanted


def test_the_page_needs_nothing_from_anywhere() -> None:
    text = page(report(groups=(group(findings=(missing(),)),)))
    tree = ElementTree.fromstring(text)

    tags = {element.tag for element in tree.iter()}
    attributes = {name for element in tree.iter() for name in element.attrib}

    assert not tags & {"script", "link", "img", "iframe", "object", "image", "use"}
    assert not attributes & {"src", "href", "style", "onload", "onclick"}
    assert "url(" not in text
    assert "://" not in text
    assert "prefers-color-scheme: dark" in text


def test_every_bar_is_as_long_as_its_share() -> None:
    tree = ElementTree.fromstring(page(report()))

    widths = [
        (svg.attrib["aria-label"], svg.findall("rect")[1].attrib["width"])
        for svg in tree.iter("svg")
    ]

    assert widths == [
        ("look at the source (not part of a failover): 9.00 s", "100.0%"),
        ("reach the target: 0.25 s", "2.8%"),
        ("commit the groups: 0.50 s", "5.6%"),
        ("orders: 321 records, 2.50 s", "100.0%"),
    ]


def test_hostile_names_stay_text() -> None:
    name = "<script>alert(1)</script>\"'&\x00\x1b[31m\u202egnp.exe"
    found = report(
        host=name,
        carried_by=name,
        lanes=(lane(name, detail=name, state=f"stalled: {name}"),),
        groups=(group(name, notes=(name,), findings=(missing(name),)),),
        notes=(name,),
        options=DrillOptions(group=name),
    )

    text = page(found)
    tree = ElementTree.fromstring(text)

    assert list(tree.iter("script")) == []
    assert "<script" not in text
    assert not any(c in text for c in "\x00\x1b\u202e")
    told = "<script>alert(1)</script>\"'&\\x00\\x1b[31m\\u202egnp.exe"
    assert shown(text).count(told) >= 8
