"""A flow with transforms, whole: tried, mirrored, audited, refused to be adopted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from heliograph.cli.app import app
from heliograph.config.load import load_config
from heliograph.model import ClusterAlias, FlowId
from heliograph.takeover.adopt import look
from heliograph.takeover.walk import WalkFrom
from heliograph.transform.record import Record
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.auditing import audited
from tests.kit.clusters import TopicNames
from tests.kit.inside import carry, running_inside
from tests.kit.mirror import write_config
from tests.kit.records import NewRec, produce, read_all
from tests.kit.topics import create_topic, wait_until
from tests.unit.transform import functions

JAVA = "org.apache.kafka.connect.transforms."
RECORDS = 40


def test_records_are_tried_mirrored_and_audited_through_the_same_transforms(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = create_topic(pair["A"], topic("inside"))
    flow = FlowId(source=ClusterAlias(f"A-{name}"), target=ClusterAlias("B"))
    file = write_config(
        tmp_path / "mm2.properties",
        {flow.source: pair["A"], "B": pair["B"]},
        {
            str(flow): {
                "topics": name,
                "transforms": "tests, mark",
                "transforms.tests.type": f"{JAVA}Filter",
                "transforms.tests.predicate": "is-test",
                "transforms.mark.type": "tests.unit.transform.functions:marked",
                "transforms.mark.on": "record",
                "predicates": "is-test",
                "predicates.is-test.type": f"{JAVA}predicates.HasHeaderKey",
                "predicates.is-test.name": "test",
            }
        },
    )
    produce(pair["A"], name, [_record(number) for number in range(RECORDS)])

    words = ["transform", str(file), "--topic", name, "--sample", "8", "--json"]
    tried = CliRunner().invoke(app("transform", "plan"), words)
    planned = CliRunner().invoke(app("transform", "plan"), ["plan", str(file)])
    carry(file)
    report = audited(file, flow)
    adoption = look(load_config(file), flow, WalkFrom.SYNC)

    records = json.loads(tried.stdout)["flows"][0]["records"]
    assert [each["fate"] for each in records] == ["changed", "dropped", "changed", "changed"] * 2
    assert "records go through tests (Filter), mark" in planned.stdout
    mirrored = read_all(pair["B"], f"{flow.source}.{name}")[0]
    kept = [number for number in range(RECORDS) if number % 4 != 1]
    assert [(rec.value, rec.headers[-1]) for rec in mirrored] == [
        (b"v%d" % number, ("seen", b"%d" % number)) for number in kept
    ]
    assert not report.differs and not report.problems
    assert (report.records, report.topics[0].left_out_records) == (len(kept), RECORDS - len(kept))
    assert "its transforms change records" in adoption.problem


def test_dead_letters_are_listed_repaired_and_replayed_once_and_the_audit_knows_of_them(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    """A topic that a router renames, a value that fails, a record that is too large."""
    name = topic("bad")
    flow = FlowId(source=ClusterAlias(f"A-{name}"), target=ClusterAlias("B"))
    target_topic = f"west-{name}"
    create_topic(pair["A"], name)
    create_topic(pair["B"], target_topic, config={"max.message.bytes": "2000"})
    file = write_config(
        tmp_path / "mm2.properties",
        {flow.source: pair["A"], "B": pair["B"]},
        {
            str(flow): {
                "topics": name,
                "transforms": "west, strict",
                "transforms.west.type": f"{JAVA}RegexRouter",
                "transforms.west.regex": rf"{flow.source}\\.(.*)",
                "transforms.west.replacement": "west-$1",
                "transforms.strict.type": f"{__name__}:strict",
                "transforms.strict.on": "record",
                "on.transform.error": "dead-letter",
                "on.unwritable.record": "dead-letter",
                "dead.letter.topic.replication.factor": "1",
            }
        },
    )
    produce(pair["A"], name, [NewRec(value=b"v%d" % n, partition=0) for n in range(20)])
    produce(pair["A"], name, [NewRec(value=b"large" + bytes(5_000), partition=0)])
    produce(pair["A"], name, [NewRec(value=b"last", partition=0)])

    carry(file)
    listed = _letters(file, "list")["letters"]
    (shown,) = _letters(file, "show", "--reason", "MESSAGE_TOO_LARGE")["letters"]
    printed = CliRunner().invoke(
        app("letters"), ["letters", str(file), "show", "--offsets", "3..4"]
    )
    before = audited(file, flow)
    tried = _letters(file, "replay", "--transform", f"{__name__}:mended", "--dry-run")
    mended = [_letters(file, "replay", "--transform", f"{__name__}:mended") for _ in range(2)]
    ranged = _letters(
        file, "replay", "--source", "--topic", name, "--partition", "0", "--offsets", "0..2"
    )
    after = audited(file, flow)

    assert [(each["offset"], each["stage"]) for each in listed] == [
        *((n, "TRANSFORMATION") for n in (3, 10, 17)),
        (20, "KAFKA_PRODUCE"),
    ]
    assert shown["offset"] == 20
    assert str(shown["record"]["value"]).startswith("large")
    assert "transform strict: ValueError: seven" in printed.stdout
    assert "value: v3" in printed.stdout
    assert not before.differs and not before.problems
    outcomes = [[each["outcome"] for each in run["records"]] for run in (tried, *mended, ranged)]
    assert outcomes == [
        ["replayed"] * 4,
        ["replayed"] * 4,
        ["replayed before"] * 4,
        ["replayed"] * 2,
    ]
    mirrored = read_all(pair["B"], target_topic)[0]
    values = [rec.value for rec in mirrored]
    kept = [b"v%d" % n for n in range(20) if n % 7 != 3]
    assert values == [
        *kept,
        b"last",
        b"mended 3",
        b"mended 10",
        b"mended 17",
        b"short",
        b"v0",
        b"v1",
    ]
    assert mirrored[-3].headers == (
        ("heliograph.replayed", b"%s/%s/0/20" % (flow.source.encode(), name.encode())),
    )
    assert not after.differs and not after.problems


def test_a_function_that_does_not_come_back_costs_its_lane_and_no_other(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    hung, fine = (create_topic(pair["A"], topic(each)) for each in ("hung", "fine"))
    flow = FlowId(source=ClusterAlias(f"A-{hung}"), target=ClusterAlias("B"))
    file = write_config(
        tmp_path / "mm2.properties",
        {flow.source: pair["A"], "B": pair["B"]},
        {
            str(flow): {
                "topics": f"{hung},{fine}",
                "transforms": "wait",
                "transforms.wait.type": "tests.unit.transform.functions:hangs_on_bad",
                "transforms.wait.topics": hung,
            }
        },
    )
    produce(pair["A"], hung, [NewRec(value=v, partition=0) for v in (b"good", b"bad", b"last")])
    produce(pair["A"], fine, [NewRec(value=b"v%d" % n, partition=0) for n in range(RECORDS)])
    functions.never.clear()

    try:
        with running_inside(file) as mirror:
            wait_until(lambda: bool(mirror.stalls), "a lane that says why it does not go on")
            stalls = mirror.stalls
            beside = read_all(pair["B"], f"{flow.source}.{fine}")[0]
            functions.never.set()
            mirror.catch_up()
    finally:
        functions.never.set()

    assert len(stalls) == 1
    assert f"{hung}-0: offset 0: transform wait has been at work for" in stalls[0]
    assert len(beside) == RECORDS
    there = read_all(pair["B"], f"{flow.source}.{hung}")[0]
    assert [rec.value for rec in there] == [b"good", b"bad", b"last"]


def test_a_function_that_takes_too_much_memory_costs_its_record_and_no_other_lane(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    hungry, fine = (create_topic(pair["A"], topic(each)) for each in ("hungry", "fine"))
    flow = FlowId(source=ClusterAlias(f"A-{hungry}"), target=ClusterAlias("B"))
    file = write_config(
        tmp_path / "mm2.properties",
        {flow.source: pair["A"], "B": pair["B"]},
        {
            str(flow): {
                "topics": f"{hungry},{fine}",
                "transforms": "eat",
                "transforms.eat.type": "tests.unit.transform.hungry:eats_and_catches",
                "transforms.eat.on": "record",
                "transform.memory.max.bytes": str(64 << 20),
                "on.transform.error": "dead-letter",
                "dead.letter.topic.replication.factor": "1",
            }
        },
    )
    produce(pair["A"], hungry, [NewRec(value=v, partition=0) for v in (b"good", b"bad", b"last")])
    produce(pair["A"], fine, [NewRec(value=b"v%d" % n, partition=0) for n in range(RECORDS)])

    carry(file)
    letters = _letters(file, "list")["letters"]

    there = {each: read_all(pair["B"], f"{flow.source}.{each}")[0] for each in (hungry, fine)}
    assert [rec.value for rec in there[hungry]] == [b"good", b"last"]
    assert len(there[fine]) == RECORDS
    assert [(each["offset"], each["error"]) for each in letters] == [(1, "TransformTookMemory")]


def strict(record: Record) -> Record:
    if (record.value or b"").startswith(b"v") and int((record.value or b"")[1:]) % 7 == 3:
        raise ValueError("seven")
    return record


def mended(record: Record) -> Record:
    if record.offset == 20:
        return record._replace(value=b"short")
    return record._replace(value=b"mended %d" % record.offset)


def _letters(file: Path, *words: str) -> dict[str, Any]:
    ran = CliRunner().invoke(app("letters"), ["letters", str(file), *words, "--json"])
    assert ran.exit_code == 0, ran.output
    document: dict[str, Any] = json.loads(ran.stdout)
    return document


def _record(number: int) -> NewRec:
    headers = (("test", b"1"),) if number % 4 == 1 else ()
    return NewRec(key=b"k", value=b"v%d" % number, headers=headers, partition=0)
