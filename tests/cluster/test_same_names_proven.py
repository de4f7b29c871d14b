"""Two clusters that take writes under one name: audit, drill and failback of what each carries."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from heliograph.audit.findings import FindingKind
from heliograph.audit.run import AuditReport
from heliograph.drill.report import DrillOptions, DrillReport
from heliograph.drill.run import drill
from heliograph.failback.divergence import Choice
from heliograph.ledger.entries import FlowEntry, FlowKey, Tombstone
from heliograph.ledger.service import LedgerService
from heliograph.model import FlowId
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.auditing import audited
from tests.kit.clusters import TopicNames
from tests.kit.failback import IDENTITY, Stage, open_stage
from tests.kit.fake_records import records_batch
from tests.kit.groups import commit
from tests.kit.inside import InsideMirror
from tests.kit.mirror import lasting_topic
from tests.kit.records import end_offsets, numbered, produce, read_all
from tests.kit.topics import delete_topic, produce_raw

Pair = dict[str, LocalCluster]
_OURS, _THEIRS = 90, 60
_STRANGER: Final = 987_654
_CHECKPOINTS: Final = {
    "emit.checkpoints.enabled": "true",
    "checkpoints.topic.replication.factor": "1",
}


@dataclass(frozen=True, slots=True)
class Both:
    """A flow each way between clusters that have both written; nothing waits."""

    stage: Stage
    name: str

    def mirror(self) -> None:
        with closing(InsideMirror(self.stage.config)) as inside:
            inside.catch_up(2)
            inside.settle()

    def audit(self, flow: FlowId) -> AuditReport:
        return audited(self.stage.file, flow)

    def drill(self) -> DrillReport:
        return asyncio.run(drill(self.stage.config, self.stage.there, DrillOptions()))

    def values(self, side: str) -> list[bytes]:
        (records,) = read_all(
            {"A": self.stage.old, "B": self.stage.present}[side], self.name
        ).values()
        return sorted(each.value or b"" for each in records)


@pytest.fixture
def both(pair: Pair, topic: TopicNames, tmp_path: Path) -> Both:
    name = topic("both")
    for cluster in pair.values():
        lasting_topic(cluster, name)
    found = Both(open_stage(pair, name, tmp_path, name, {**IDENTITY, **_CHECKPOINTS}), name)
    for turn in range(3):
        # In turns, so that both logs are mixed, each in an order of its own.
        for cluster, count, start in ((pair["A"], _OURS, 0), (pair["B"], _THEIRS, 10_000)):
            some = numbered(count // 3, start=start + turn * count // 3)
            produce(cluster, name, some, batch_records_max=7)
        found.mirror()
    return found


def made(*parts: tuple[int, int]) -> list[bytes]:
    """The values of records from a number on, so many."""
    return sorted(
        each.value or b"" for start, count in parts for each in numbered(count, start=start)
    )


ALL: Final = ((0, _OURS), (10_000, _THEIRS))


def test_an_audit_compares_what_the_flow_carries_and_says_what_it_left_out(both: Both) -> None:
    stage = both.stage
    there, back = both.audit(stage.there), both.audit(stage.back)

    for report, own, others in ((there, _OURS, _THEIRS), (back, _THEIRS, _OURS)):
        assert not report.differs, report.findings
        assert report.problems == ()
        (seen,) = report.topics
        assert (seen.records, seen.expired_records) == (own, 0)
        # What lies behind the last record of the lane belongs to no unit.
        assert others // 3 <= seen.brought_records <= others
        assert others // 3 <= seen.others_records <= others


def test_an_audit_misses_what_a_flow_left_out_that_no_mirror_had_brought(
    both: Both, pair: Pair
) -> None:
    stage = both.stage
    mistaken = FlowEntry(
        flow=stage.back, producer_id=_STRANGER, producer_epoch=0, source_cluster_id="", created_ms=1
    )
    with closing(LedgerService(stage.config.clusters)) as ledgers:
        ledgers.note(stage.back, [mistaken])
        produce_raw(
            pair["A"], both.name, records_batch(3, producer_id=_STRANGER, epoch=0, sequence=0)
        )
        produce(pair["A"], both.name, numbered(2, start=500))
        both.mirror()
        ledgers.note(stage.back, [Tombstone(key=FlowKey(producer_id=_STRANGER))])

    report = both.audit(stage.there)

    assert {one.finding.kind for one in report.findings} == {FindingKind.MISSING}
    assert report.counts[FindingKind.MISSING] == 3


def test_a_drill_of_two_written_sides_passes_with_a_group_among_both_kinds_of_records(
    both: Both, pair: Pair
) -> None:
    end = end_offsets(pair["A"], both.name)[0]
    commit(pair["A"], f"g-{both.name}", both.name, {0: end // 2})
    with closing(InsideMirror(both.stage.config)) as inside:
        inside.catch_up(2)
        inside.step("checkpoints", both.stage.there)

    report = both.drill()

    assert report.reasons == ()
    (group,) = report.groups
    assert (group.findings, group.skipped, group.unplaced) == ((), (), ())
    assert group.equal_records > 0
    assert group.others_records > 0


def test_a_failback_of_two_written_sides_brings_what_each_lacks_and_nothing_twice(
    both: Both, pair: Pair
) -> None:
    stage = both.stage
    stage.fail_over(stage.there, "unplanned")
    produce(pair["B"], both.name, numbered(40, start=20_000))

    report = stage.fail_back()
    stage.mirror(stage.back, lanes=1)
    produce(pair["B"], both.name, numbered(5, start=30_000))
    stage.mirror(stage.back, lanes=1)

    wanted = made(*ALL, (20_000, 40), (30_000, 5))
    (divergence,) = report.divergences[0].partitions
    assert divergence.unmirrored_records == 0
    assert both.values("A") == both.values("B") == wanted
    # And home again: the flow there goes on by its own map, too.
    stage.fail_over(stage.back, "planned")
    produce(pair["A"], both.name, numbered(5, start=40_000))
    stage.fail_back(flow=stage.back)
    stage.mirror(stage.there, lanes=1)
    wanted = made(*ALL, (20_000, 40), (30_000, 5), (40_000, 5))
    assert both.values("A") == both.values("B") == wanted


def test_a_failback_goes_on_where_the_way_back_stood_and_not_where_the_flow_there_did(
    both: Both, pair: Pair
) -> None:
    """The way back may be ahead of the flow that was failed over, or behind it."""
    stage = both.stage
    # Behind: what B wrote first, lies before what came from A, and has not gone to A yet.
    produce(pair["B"], both.name, numbered(9, start=50_000))
    produce(pair["A"], both.name, numbered(7, start=51_000))
    stage.mirror(stage.there, lanes=1)
    stage.fail_over(stage.there, "unplanned")
    produce(pair["B"], both.name, numbered(4, start=52_000))
    stage.fail_back()
    stage.mirror(stage.back, lanes=1)

    wanted = made(*ALL, (50_000, 9), (51_000, 7), (52_000, 4))
    assert both.values("A") == both.values("B") == wanted


def test_a_failback_repeats_nothing_that_the_way_back_had_brought(both: Both, pair: Pair) -> None:
    stage = both.stage
    produce(pair["A"], both.name, numbered(7, start=61_000))
    produce(pair["B"], both.name, numbered(9, start=60_000))
    stage.mirror(stage.back, lanes=1)
    stage.fail_over(stage.there, "unplanned")
    produce(pair["B"], both.name, numbered(4, start=62_000))

    report = stage.fail_back(Choice.RESYNC)
    stage.mirror(stage.back, lanes=1)

    (divergence,) = report.divergences[0].partitions
    assert divergence.unmirrored_records == 7
    assert both.values("A") == made(*ALL, (60_000, 9), (61_000, 7), (62_000, 4))
    assert both.values("B") == made(*ALL, (60_000, 9), (62_000, 4))


def test_a_failback_to_a_cluster_that_lost_its_topic_brings_back_its_own_records_too(
    both: Both, pair: Pair
) -> None:
    stage = both.stage
    stage.fail_over(stage.there, "unplanned")
    delete_topic(pair["A"], both.name)
    lasting_topic(pair["A"], both.name)
    produce(pair["B"], both.name, numbered(40, start=20_000))

    stage.fail_back(Choice.RESYNC)
    stage.mirror(stage.back, lanes=1)

    assert both.values("A") == both.values("B") == made(*ALL, (20_000, 40))


def _cut(pair: Pair, name: str, folder: Path, *, left: int) -> Stage:
    """A wrote 50 records, then B 5, and both have all of them. A is failed over and loses its log
    from an offset on; B has 3 more."""
    for cluster in pair.values():
        lasting_topic(cluster, name)
    stage = open_stage(pair, name, folder, name, {**IDENTITY, "start.at": "latest"})
    stage.mirror(stage.there, lanes=1)
    produce(pair["A"], name, numbered(50))
    stage.mirror(stage.there, lanes=1)
    stage.mirror(stage.back, lanes=1)
    produce(pair["B"], name, numbered(5, start=500))
    with closing(InsideMirror(stage.config, leads=lambda each: each == stage.back)) as inside:
        inside.catch_up(1)
        inside.settle()
    assert end_offsets(pair["A"], name) == {0: 55}
    for flow in (stage.there, stage.back):
        stage.forget_topic_ids(flow)
    stage.fail_over(stage.there, "unplanned")
    delete_topic(pair["A"], name)
    lasting_topic(pair["A"], name)
    produce(pair["A"], name, numbered(left))
    produce(pair["B"], name, numbered(3, start=600))
    return stage


@pytest.mark.parametrize("left", [50, 40])
def test_a_failback_brings_again_what_the_old_primary_lost_of_what_had_been_brought(
    pair: Pair, topic: TopicNames, tmp_path: Path, left: int
) -> None:
    """Cut off before the first record of the way back, which so stands at its start again."""
    name = topic("cut")
    stage = _cut(pair, name, tmp_path, left=left)

    stage.fail_back()
    stage.mirror(stage.back, lanes=1)

    wanted = made((0, 50), (500, 5), (600, 3))
    for cluster in pair.values():
        (records,) = read_all(cluster, name).values()
        assert sorted(each.value or b"" for each in records) == wanted


def test_what_only_one_side_has_counts_whoever_wrote_it_until_it_is_brought(
    pair: Pair, topic: TopicNames, tmp_path: Path
) -> None:
    """What A lost is on B alone, some of it written by A's flow; B is left before it is back."""
    stage = _cut(pair, topic("only"), tmp_path, left=40)
    stage.fail_back()
    stage.fail_over(stage.back, "unplanned")

    report = stage.fail_back(Choice.RESYNC, flow=stage.back)

    (divergence,) = report.divergences[0].partitions
    assert divergence.unmirrored_records == 10 + 5 + 3
    (saved,) = read_all(pair["A"], f"saved-{stage.back.source}").values()
    assert len(saved) == 18
