"""Audits of real copies: faults made by hand, and mirrors that made none."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from heliograph.audit.findings import FindingKind
from heliograph.audit.loop import AuditJob
from heliograph.audit.plan import AuditOptions, note_of
from heliograph.audit.repair import repair
from heliograph.audit.run import AuditReport, audit_flow
from heliograph.cli.app import app
from heliograph.config.load import load_config
from heliograph.errors import AuditDiffers
from heliograph.ledger.locations import all_topics
from heliograph.ledger.service import LedgerService
from heliograph.model import ClusterAlias, FlowId, OffsetRange, TopicName, TopicPartition
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.auditing import Row, audited, inside, rows, vouch, write_rows
from tests.kit.clusters import TopicNames
from tests.kit.inside import carry
from tests.kit.mirror import lasting_topic, write_config
from tests.kit.records import (
    NewRec,
    Transaction,
    numbered,
    produce,
    produce_transactions,
    read_all,
)
from tests.kit.runs import running_mirror
from tests.kit.soaking import in_soak
from tests.kit.topics import delete_records_before, force_compaction, wait_until

MANY = in_soak(1_000_000, ci=200_000)
MISSING, REPEATED, CHANGED, HEADER, SWAPPED, FOREIGN = (
    MANY * share // 1000 + 3 for share in (100, 250, 400, 555, 700, 900)
)
SAME_NAMES = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


def test_six_faults_in_many_records_are_each_found_where_they_are(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name, flow, file = scene(pair, topic, tmp_path)
    records = rows(MANY)
    write_rows(pair["A"], name, records)
    write_rows(pair["B"], name, _faulty(records))
    vouch(file, flow, name, MANY)

    report = audited(file, flow)

    assert [_told(report, n) for n in range(len(report.findings))] == [
        ("missing", (MISSING, MISSING + 1), (MISSING, MISSING), ""),
        ("repeated", (REPEATED, REPEATED + 1), (REPEATED, REPEATED + 1), ""),
        ("changed", (CHANGED, CHANGED + 1), (CHANGED, CHANGED + 1), "value"),
        ("changed", (HEADER, HEADER + 1), (HEADER, HEADER + 1), "headers"),
        ("swapped", (SWAPPED, SWAPPED + 2), (SWAPPED, SWAPPED + 2), ""),
        ("foreign", None, (FOREIGN, FOREIGN + 1), ""),
    ]
    assert report.records == MANY
    assert report.counts == {
        FindingKind.MISSING: 1,
        FindingKind.REPEATED: 1,
        FindingKind.CHANGED: 2,
        FindingKind.SWAPPED: 2,
        FindingKind.FOREIGN: 1,
    }


def test_an_equal_copy_is_equal_and_its_batches_stay_unopened(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name, flow, file = scene(pair, topic, tmp_path)
    records = rows(200_000)
    for alias in ("A", "B"):
        write_rows(pair[alias], name, records)
    vouch(file, flow, name, len(records))

    report = audited(file, flow)

    (tally,) = report.topics
    assert not report.differs
    assert tally.records == tally.unopened_records == len(records)


def test_a_mirrored_flow_is_equal_with_transactions_compaction_codecs_and_tiny_batches(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = topic("audited")
    plain, tiny, committed, compacted = (f"{name}-{what}" for what in ("z", "tiny", "txn", "keys"))
    stamped = f"{name}-stamped"
    lasting_topic(pair["A"], plain, partitions=2)
    lasting_topic(pair["A"], tiny)
    lasting_topic(pair["A"], committed)
    lasting_topic(pair["A"], compacted, config={"cleanup.policy": "compact"})
    lasting_topic(pair["A"], stamped, config={"message.timestamp.type": "LogAppendTime"})
    produce(pair["A"], plain, numbered(2_000, partitions=2), codec="zstd")
    produce(pair["A"], plain, numbered(2_000, partitions=2, start=2_000), codec="lz4")
    produce(pair["A"], tiny, numbered(3_000), batch_records_max=1)
    produce_transactions(
        pair["A"],
        committed,
        [Transaction(records=numbered(50, start=50 * n), commit=n % 3 != 1) for n in range(9)],
        transactional_id=name,
    )
    produce(pair["A"], compacted, numbered(1_000, keys=300))
    force_compaction(pair["A"], compacted)
    produce(pair["A"], stamped, numbered(500))
    flow = FlowId(source=ClusterAlias(f"{name}A"), target=ClusterAlias(f"{name}B"))
    file = _file(pair, flow, tmp_path, topics=f"{name}-.*", policy=None)
    carry(file, lanes=6)

    report = audited(file, flow, AuditOptions(unit_records_max=700))

    tallies = {tally.topic: tally for tally in report.topics}
    assert not report.differs
    assert not report.problems
    assert tallies[plain].records == 4_000  # type: ignore[index]
    assert tallies[tiny].records == 3_000  # type: ignore[index]
    assert tallies[tiny].unopened_records < 3_000  # type: ignore[index]
    assert tallies[committed].records == 300  # type: ignore[index]
    assert tallies[stamped].records == 500  # type: ignore[index]
    assert tallies[compacted].expired_records == 0  # type: ignore[index]


def test_what_is_missing_is_repaired_once_and_known_by_later_audits(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name, flow, file = scene(pair, topic, tmp_path)
    records = rows(5_000)
    write_rows(pair["A"], name, records)
    write_rows(pair["B"], name, records[:1_000] + records[1_003:4_000] + records[4_001:])
    vouch(file, flow, name, len(records))
    before = audited(file, flow)

    done = repair(load_config(file), flow, before.findings)

    after = audited(file, flow)
    last = read_all(pair["B"], name)[0][-4:]
    assert {one.finding.kind for one in before.findings} == {FindingKind.MISSING}
    assert done.records == 4
    assert not done.refused
    assert not after.differs
    assert after.topics[0].repaired_records == 4
    assert [rec.key for rec in last] == [b"k1000", b"k1001", b"k1002", b"k4000"]
    assert [rec.timestamp_ms for rec in last] == [
        records[n][0] for n in (1_000, 1_001, 1_002, 4_000)
    ]
    origins = [dict(rec.headers)["heliograph.origin"] for rec in last]
    assert origins == [f"{flow.source}/{name}/0/{n}".encode() for n in (1000, 1001, 1002, 4000)]


def test_what_cannot_be_repaired_is_named_with_the_reason(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name, flow, file = scene(pair, topic, tmp_path, config={"cleanup.policy": "compact"})
    records = rows(2_000)
    write_rows(pair["A"], name, records)
    copy = [records[0], *records[2:]]
    copy[500] = (*copy[500][:2], b"other", copy[500][3])
    write_rows(pair["B"], name, copy)
    vouch(file, flow, name, len(records))
    report = audited(file, flow)

    done = repair(load_config(file), flow, report.findings)

    assert done.records == 0
    assert {(one.kind, one.why) for one in done.refused} == {
        (
            FindingKind.MISSING,
            "the topic is compacted: an old record would replace newer ones",
        ),
        (FindingKind.CHANGED, "a record cannot be overwritten in a log"),
    }


def test_an_audit_goes_on_where_the_last_one_ended(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name, flow, file = scene(pair, topic, tmp_path)
    records = rows(3_000)
    for alias in ("A", "B"):
        write_rows(pair[alias], name, records[:2_000])
    vouch(file, flow, name, 2_000)
    first = audited(file, flow, AuditOptions(unit_records_max=1_000))
    for alias in ("A", "B"):
        write_rows(pair[alias], name, records[2_000:])
    vouch(file, flow, name, 3_000)

    second = audited(file, flow, AuditOptions(resume=True))
    third = audited(file, flow, AuditOptions(resume=True))

    assert (first.records, second.records, third.records) == (2_000, 1_000, 0)
    assert not (first.differs or second.differs or third.differs)


def test_an_audit_that_was_stopped_is_taken_up_again_with_what_it_had_found(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name, flow, file = scene(pair, topic, tmp_path)
    records = rows(3_000)
    write_rows(pair["A"], name, records)
    write_rows(pair["B"], name, [*records[:100], *records[101:]])
    vouch(file, flow, name, len(records))
    config = load_config(file)
    run = inside(config, flow)
    choice = AuditOptions(unit_records_max=1_000)
    stopped = audit_flow(
        config, flow, choice, all_topics(), lambda units, heard: run(list(units)[:1], heard)
    )

    resumed = audited(file, flow, AuditOptions(resume=True))

    assert stopped.records == 1_000
    assert resumed.records == 2_000
    assert [_told(resumed, n)[:2] for n in range(len(resumed.findings))] == [
        ("missing", (100, 101))
    ]


def test_a_time_leaves_out_what_is_older_and_a_sample_says_its_share(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name, flow, file = scene(pair, topic, tmp_path)
    records = rows(10_000)
    write_rows(pair["A"], name, records, per_batch=500)
    write_rows(pair["B"], name, records, per_batch=500)
    vouch(file, flow, name, len(records))

    since = audited(file, flow, AuditOptions(since_ms=records[7_500][0]))
    sampled = audited(file, flow, AuditOptions(sample=0.3, unit_records_max=1_000, seed=7))
    again = audited(file, flow, AuditOptions(sample=0.3, unit_records_max=1_000, seed=7))

    assert since.records == 2_500
    assert 0 < sampled.compared_units < sampled.unit_count == 10
    assert sampled.records == again.records == 1_000 * sampled.compared_units


def test_a_record_of_somebody_else_is_foreign_and_what_retention_took_is_expired(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = topic("audited")
    lasting_topic(pair["A"], name)
    produce(pair["A"], name, numbered(1_000))
    flow = FlowId(source=ClusterAlias(f"{name}A"), target=ClusterAlias(f"{name}B"))
    file = _file(pair, flow, tmp_path, topics=name, policy=None)
    carry(file, lanes=1)
    produce(pair["B"], f"{flow.source}.{name}", [NewRec(key=b"x", value=b"not ours")])
    produce(pair["A"], name, numbered(500, start=1_000))
    carry(file, lanes=1)
    delete_records_before(pair["A"], name, {0: 400})

    report = audited(file, flow)

    (found,) = report.findings
    assert found.finding.kind is FindingKind.FOREIGN
    assert found.finding.target == OffsetRange(start=1_000, end=1_001)
    assert report.topics[0].expired_records == 400
    assert report.records == 1_100


def test_the_command_names_a_difference_with_3_and_says_equal_with_0(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name, flow, file = scene(pair, topic, tmp_path)
    records = rows(20_000)
    write_rows(pair["A"], name, records)
    write_rows(pair["B"], name, [*records[:12_345], *records[12_346:]])
    vouch(file, flow, name, len(records))

    different = asked(file, "--master", "local[2]", "--json")
    nothing_new = asked(file, "--resume")

    assert different.exit_code == 3, different.output
    (found,) = json.loads(different.stdout)["flows"][0]["findings"]
    assert found == {
        "topic": name,
        "partition": 0,
        "target_topic": name,
        "kind": "missing",
        "source": [12_345, 12_346],
        "target": [12_345, 12_345],
        "records": 1,
        "note": "",
    }
    assert nothing_new.exit_code == 0, nothing_new.output
    assert "equal; 0 records compared" in nothing_new.stdout


def test_a_running_flow_audits_what_comes_and_what_differs_stays_its_problem(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name, flow, file = scene(pair, topic, tmp_path)
    records = rows(3_000)
    config = load_config(file)
    loop = AuditJob(config, config.flow(flow), 1.0, inside(config, flow))
    for alias in ("A", "B"):
        write_rows(
            pair[alias], name, [*records[:999], records[0]] if alias == "B" else records[:1_000]
        )
    vouch(file, flow, name, 1_000)
    loop.step()  # what was there before is not its concern
    for alias in ("A", "B"):
        write_rows(pair[alias], name, records[1_000:2_000])
    vouch(file, flow, name, 2_000)
    loop.step()
    write_rows(pair["A"], name, records[2_000:])
    write_rows(pair["B"], name, [*records[2_000:2_500], *records[2_501:]])
    vouch(file, flow, name, 3_000)

    with pytest.raises(AuditDiffers, match=r"1 missing .*source \[2500, 2501\)"):
        loop.step()

    with pytest.raises(AuditDiffers):
        loop.step()


def test_a_mirror_with_an_interval_audits_itself_while_it_runs(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = topic("audited")
    lasting_topic(pair["A"], name)
    produce(pair["A"], name, numbered(100))
    flow = FlowId(source=ClusterAlias(f"{name}A"), target=ClusterAlias(f"{name}B"))
    file = _file(
        pair, flow, tmp_path, topics=name, policy=None, more={"audit.interval.seconds": "1"}
    )
    with running_mirror(file):
        wait_until(lambda: _noted(file, flow, name) is not None, "the first look", timeout_s=60)

        produce(pair["A"], name, numbered(700, start=100))

        # The note moves on only past what was found equal.
        wait_until(lambda: _noted(file, flow, name) == 800, "all of it audited", timeout_s=60)


def test_what_makes_no_sense_gets_a_sentence_and_an_exit_code(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name, flow, file = scene(pair, topic, tmp_path)
    write_rows(pair["A"], name, rows(10))
    without_ledger = asked(file)
    vouch(file, flow, name, 0)

    answers = {
        "future": asked(file, "--since", "2999-01-01T00:00:00Z"),
        "zone": asked(file, "--since", "2020-01-01T00:00:00"),
        "sample": asked(file, "--sample", "1.5"),
        "regex": asked(file, "--topic", "("),
        "unmirrored": asked(file, "--topic", "nobody-knows-it"),
    }

    assert without_ledger.exit_code == 1
    assert "nothing was mirrored yet" in str(without_ledger.exception)
    codes = {what: answer.exit_code for what, answer in answers.items()}
    assert codes == {"future": 2, "zone": 2, "sample": 2, "regex": 2, "unmirrored": 1}
    assert "in the future" in answers["future"].stderr
    assert "no topic that was asked for is mirrored" in str(answers["unmirrored"].exception)


def scene(
    pair: dict[str, LocalCluster],
    topic: TopicNames,
    tmp_path: Path,
    config: dict[str, str] | None = None,
) -> tuple[str, FlowId, Path]:
    """A topic on both sides under one name, and a flow between them that never ran."""
    name = topic("audited")
    for alias in ("A", "B"):
        lasting_topic(pair[alias], name, config=config)
    flow = FlowId(source=ClusterAlias(f"{name}A"), target=ClusterAlias(f"{name}B"))
    return name, flow, _file(pair, flow, tmp_path, topics=name, policy=SAME_NAMES)


def _noted(file: Path, flow: FlowId, topic: str) -> int | None:
    """How far the ledger says that the lane was audited."""
    with closing(LedgerService(load_config(file).clusters)) as ledgers:
        lane = TopicPartition(topic=TopicName(topic), partition=0)
        note = ledgers.ask(flow, lambda view: note_of(view, lane))
    return None if note is None else note.position


def _file(
    pair: dict[str, LocalCluster],
    flow: FlowId,
    tmp_path: Path,
    *,
    topics: str,
    policy: str | None,
    more: dict[str, str] | None = None,
) -> Path:
    settings = {"topics": topics, **(more or {})}
    if policy is not None:
        settings["replication.policy.class"] = policy
    clusters: dict[str, LocalCluster | str] = {flow.source: pair["A"], flow.target: pair["B"]}
    return write_config(tmp_path / "audit.properties", clusters, {str(flow): settings})


def _faulty(records: list[Row]) -> list[Row]:
    copy = list(records)
    copy.insert(FOREIGN, (1_700_000_000_000, b"x", b"not ours", []))
    copy[SWAPPED], copy[SWAPPED + 1] = copy[SWAPPED + 1], copy[SWAPPED]
    copy[HEADER] = (*copy[HEADER][:3], [("n", b"other")])
    copy[CHANGED] = (*copy[CHANGED][:2], b"V" + copy[CHANGED][2][1:], copy[CHANGED][3])
    copy.insert(REPEATED + 1, copy[REPEATED])
    del copy[MISSING]
    return copy


def _told(report: AuditReport, index: int) -> tuple[str, Any, Any, str]:
    finding = report.findings[index].finding
    source = None if finding.source is None else (finding.source.start, finding.source.end)
    target = None if finding.target is None else (finding.target.start, finding.target.end)
    return finding.kind.value, source, target, finding.note


def asked(file: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app(), ["audit", str(file), *arguments])
