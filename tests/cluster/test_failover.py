"""Failing over on real clusters: what moves, what is refused, what is said."""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from confluent_kafka import TopicPartition as ClientPartition

from heliograph.broker.admin import ClusterAdmin
from heliograph.errors import BrokerError, RecoveryRefused
from heliograph.failover.command import FailoverOrder, abandon, fail_over, preview
from heliograph.ledger.fence import fence_of, unfence_entry
from heliograph.ledger.service import LedgerService
from heliograph.model import TopicName
from heliograph.procedure.journal import Journal, PartKind, Procedure
from heliograph.procedure.runner import StepEvent
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.cluster.test_cli import heliograph
from tests.kit.clusters import TopicNames
from tests.kit.entries import head_entry
from tests.kit.failing_over import NOBODY, Stage
from tests.kit.groups import commit, member
from tests.kit.ledgers import begin_lanes, open_ledger
from tests.kit.records import Transaction, numbered, produce, produce_transactions, read_all
from tests.kit.topics import create_topic, delete_records_before

PLACES = {"early": 100, "late": 250, "done": 300}


@pytest.fixture
def stage(pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path) -> Stage:
    """Two partitions of 300 records each, and three groups at 100, 250 and the end."""
    made = Stage(
        folder=tmp_path,
        source=pair["A"],
        target=pair["B"],
        topic=topic("leave"),
    )
    create_topic(made.source, made.topic, partitions=2, config={"retention.ms": "-1"})
    produce(made.source, made.topic, numbered(600, partitions=2))
    made.plan_group_offsets(
        {f"{made.topic}-{name}": {0: at, 1: at} for name, at in PLACES.items()},
    )
    return made


class Killed(BaseException):
    """Ends the tool where it stands, as far as a process can do that to itself."""


def fence_in(stage: Stage) -> str:
    ledgers = LedgerService(stage.config.clusters)
    try:
        fence = ledgers.ask(stage.flow, fence_of)
        return "" if fence is None else fence.why
    finally:
        ledgers.close()


def test_with_the_source_down_every_group_goes_on_at_the_exact_record(stage: Stage) -> None:
    stage.mirror()
    said: list[StepEvent] = []

    report = stage.fail_over(say=said.append)

    assert [event.step for event in said if event.what == "done"] == [
        "check",
        "fence",
        "groups",
        "switch",
    ]
    records = read_all(stage.source, stage.topic)
    for name, offset in PLACES.items():
        wanted = {n: [rec.value for rec in recs[offset:]] for n, recs in records.items()}
        assert stage.read_on(f"{stage.topic}-{name}") == wanted
    assert len(report.moved) == 3
    assert report.lost_records_min == 0
    assert not report.is_loss_known
    assert "failed over" in fence_in(stage)


def test_a_dry_run_changes_nothing_and_shows_what_would_be_done(stage: Stage) -> None:
    stage.mirror()
    before = (stage.ledger_end, stage.groups)

    said = heliograph("failover", stage.file(source=NOBODY), "--dry-run", "--json")

    found = said.document
    assert said.code == 0, said.err
    assert (stage.ledger_end, stage.groups) == before
    assert found["steps"] == ["check", "fence", "groups", "switch"]
    offsets = {
        each["group"]: [at["target_offset"] for at in each["partitions"]]
        for each in found["groups"]
    }
    assert offsets == {
        f"{stage.topic}-done": [300, 300],
        f"{stage.topic}-early": [100, 100],
        f"{stage.topic}-late": [250, 250],
    }
    assert [loss["first_missing_offset"] for loss in found["losses"]] == [300, 300]


def test_a_group_in_use_on_the_target_stops_everything_before_anything_is_changed(
    stage: Stage,
) -> None:
    stage.mirror()
    busy = f"{stage.topic}-late"
    with member(stage.target, busy, stage.mirrored):
        before = stage.ledger_end, stage.groups

        with pytest.raises(RecoveryRefused, match=f"{busy}.*--skip-active"):
            stage.fail_over()

        assert stage.groups == before[1]
        assert fence_in(stage) == ""
        report = stage.fail_over(skip_active=True)

    assert report.skipped == (busy,)
    assert stage.groups[f"{stage.topic}-early"] == {0: 100, 1: 100}
    assert stage.groups.get(busy, {}) == {}


def test_one_that_is_finished_says_so_and_moves_nobody_back(stage: Stage) -> None:
    stage.mirror()
    stage.fail_over()
    gone_on = f"{stage.topic}-early"
    commit(stage.target, gone_on, stage.mirrored, {0: 180, 1: 190})

    again = stage.fail_over()

    assert again.was_over
    assert stage.groups[gone_on] == {0: 180, 1: 190}
    said = heliograph("failover", stage.file(), "--yes", "--json")
    assert said.code == 0, said.err
    assert said.document["state"] == "done before"


def test_an_unfinished_one_is_refused_with_other_choices_and_can_be_given_up(stage: Stage) -> None:
    stage.mirror()
    dies_after_fence(stage)

    with pytest.raises(RecoveryRefused, match=r"mode unplanned.*--abandon"):
        stage.fail_over("planned")
    said = heliograph("failover", stage.file(), "--planned", "--yes")
    assert said.code == 3
    assert "--abandon" in said.err
    given_up = asyncio.run(abandon(stage.config_down, stage.flow))

    assert given_up.fence_lifted
    assert given_up.moved == ()
    assert fence_in(stage) == ""
    with pytest.raises(RecoveryRefused, match="no unfinished failover"):
        asyncio.run(abandon(stage.config_down, stage.flow))
    produce(stage.source, stage.topic, numbered(10, partitions=2, start=600))
    stage.mirror()


def dies_after_fence(stage: Stage) -> None:
    def say(event: StepEvent) -> None:
        if event.step == "groups":
            raise Killed

    with pytest.raises(Killed):
        stage.fail_over(say=say)


def test_a_source_that_comes_back_in_the_middle_is_told_and_stays_fenced(stage: Stage) -> None:
    stage.mirror()
    dies_after_fence(stage)
    produce(stage.source, stage.topic, numbered(50, partitions=2, start=600))
    commit(stage.source, f"{stage.topic}-done", stage.topic, {0: 310, 1: 325})
    said: list[StepEvent] = []
    order = FailoverOrder(flow=stage.flow, mode="unplanned")
    report = asyncio.run(fail_over(stage.config, order, said.append))

    (groups,) = (event.text for event in said if event.step == "groups" and event.what == "done")
    assert "the source answers again" in groups
    assert fence_in(stage)
    assert report.is_loss_known
    assert [(loss.first_missing_offset, loss.records_min) for loss in report.losses] == [
        (300, 25),
        (300, 25),
    ]
    assert stage.groups[f"{stage.topic}-done"] == {0: 300, 1: 300}


@pytest.mark.parametrize("told", [True, False], ids=["told", "not told"])
def test_groups_that_went_on_before_the_tool_came_back_are_not_put_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    """Whether or not the one that moved them lived to say so."""
    stage.mirror()
    record_part = Journal.record_part

    async def record_and_die(
        journal: Journal[Any], procedure: Procedure[Any], kind: PartKind[Any], name: str, part: Any
    ) -> None:
        if told or name == "begun":
            await record_part(journal, procedure, kind, name, part)
        if name != "begun":
            raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Journal, "record_part", record_and_die)
        stage.fail_over()
    gone_on = f"{stage.topic}-early"
    with member(stage.target, gone_on, stage.mirrored) as consumer:
        ahead = [ClientPartition(stage.mirrored, number, 200) for number in (0, 1)]
        consumer.commit(offsets=ahead, asynchronous=False)

        report = stage.fail_over()

    assert stage.groups[gone_on] == {0: 200, 1: 200}
    assert len(report.moved) == 3
    assert report.skipped == ()


def test_a_driver_that_heeds_no_fence_is_noticed_before_groups_are_moved(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heliograph.failover.quiesce.STILL_S_MAX", 1.0)
    with stage.mirroring() as deaf, writing(stage):
        deaf.step("checkpoints")

        with pytest.raises(RecoveryRefused, match=r"still move.*--no-lease"):
            stage.fail_over()

        assert stage.groups == {}
    report = stage.fail_over()

    assert len(report.moved) == 3


def test_an_unfinished_one_whose_fence_somebody_lifted_is_not_gone_on_with(stage: Stage) -> None:
    stage.mirror()
    dies_after_fence(stage)
    ledgers = LedgerService(stage.config.clusters)
    ledgers.note(stage.flow, [unfence_entry()])
    ledgers.close()

    with pytest.raises(RecoveryRefused, match=r"was lifted since.*--abandon"):
        stage.fail_over()

    assert stage.groups == {}


@contextmanager
def writing(stage: Stage) -> Iterator[None]:
    """Somebody writes to the source all the time."""
    stop = Event()

    def write() -> None:
        while not stop.wait(0.05):
            produce(stage.source, stage.topic, numbered(2, partitions=2, start=600))

    writer = Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


def test_planned_without_a_driver_and_with_records_waiting_says_to_start_one(
    stage: Stage,
) -> None:
    stage.mirror()
    produce(stage.source, stage.topic, numbered(20, partitions=2, start=600))

    with pytest.raises(RecoveryRefused, match=r"20 records wait.*heliograph run"):
        stage.fail_over("planned")

    assert fence_in(stage) == ""


def test_planned_with_all_mirrored_loses_nothing_markers_and_aborted_records_aside(
    stage: Stage,
) -> None:
    produce_transactions(
        stage.source,
        stage.topic,
        [
            Transaction(records=numbered(10, partitions=2, start=600)),
            Transaction(records=numbered(10, partitions=2, start=610), commit=False),
        ],
        transactional_id=stage.topic,
    )
    stage.mirror()

    report = stage.fail_over("planned")

    assert [step.name for step in report.procedure.done] == [
        "check",
        "stop producers",
        "drain",
        "verify",
        "fence",
        "groups",
        "switch",
    ]
    assert report.is_loss_known
    assert report.lost_records_min == 0
    assert len(report.moved) == 3


def test_a_tail_that_differs_stops_a_planned_failover_before_its_fence(stage: Stage) -> None:
    """The ledger says that all was mirrored; one record on the target is another."""
    there = numbered(600, partitions=2)
    create_topic(stage.target, stage.mirrored, partitions=2, config={"retention.ms": "-1"})
    produce(stage.target, stage.mirrored, [*there[:-1], replace(there[-1], value=b"another")])
    claim_mirrored(stage, records=300)

    with pytest.raises(RecoveryRefused, match=rf"{stage.topic}-1: 1 changed"):
        stage.fail_over("planned")

    assert fence_in(stage) == ""


def claim_mirrored(stage: Stage, *, records: int) -> None:
    target = ClusterAdmin(stage.config.target_of(stage.flow))
    ledgers = LedgerService(stage.config.clusters)
    open_ledger(ledgers, stage.flow, target, None)
    begin_lanes(
        ledgers,
        stage.flow,
        stage.topic,
        target.describe_topics([TopicName(stage.mirrored)])[TopicName(stage.mirrored)],
    )
    heads = [head_entry(stage.topic, number, records=records) for number in (0, 1)]
    ledgers.note(stage.flow, heads)
    ledgers.close()


def test_a_person_sees_what_would_be_done_may_say_no_and_sees_what_was_done(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.mirror()
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))

    refused = heliograph("failover", stage.file(source=NOBODY))
    done = heliograph("failover", stage.file(source=NOBODY), "--yes")

    assert refused.code == 3
    assert f"{stage.topic}-early" in refused.out
    assert "nothing was changed" in refused.err
    assert done.code == 0, done.err
    assert "RTO" in done.out
    assert "the source did not say where it ended" in done.out
    assert re.search(r"fence +\d+\.\d s  no driver led it; 2 lanes stand still", done.err)


def test_planned_needs_the_source(stage: Stage) -> None:
    stage.mirror()
    order = FailoverOrder(flow=stage.flow, mode="planned")

    found = asyncio.run(preview(stage.config_down, order))
    said = heliograph("failover", stage.file(source=NOBODY), "--planned", "--yes")

    assert "needs the source" in found.refusal
    assert said.code == 3
    assert "needs the source" in said.err


def test_producers_that_go_on_are_named(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heliograph.failover.planned.STOP_S_MAX", 1.0)
    stage.mirror()

    with writing(stage), pytest.raises(RecoveryRefused, match=f"still write.*{stage.topic}"):
        stage.fail_over("planned")


def test_a_flow_that_never_ran_has_nothing_to_fail_over(stage: Stage) -> None:
    with pytest.raises(BrokerError, match="nothing was mirrored yet"):
        stage.fail_over()

    said = heliograph("failover", stage.file(), "--flow", "X->Y", "--yes")
    assert said.code == 2


def test_planned_refuses_while_a_group_has_yet_to_read_what_the_target_lost(stage: Stage) -> None:
    stage.mirror()
    delete_records_before(stage.target, stage.mirrored, {0: 180})

    with pytest.raises(RecoveryRefused, match=rf"{stage.topic}-early \(80 records\).*read on"):
        stage.fail_over("planned")
    assert fence_in(stage) == ""

    said: list[StepEvent] = []
    asyncio.run(abandon(stage.config, stage.flow))
    stage.fail_over(say=said.append)
    told = next(event.text for event in said if event.step == "groups" and event.what == "done")
    assert "80 records never read: the target no longer has them" in told


def test_a_webhook_that_nobody_answers_is_told_and_holds_nothing_up(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    stage = Stage(
        folder=tmp_path,
        source=pair["A"],
        target=pair["B"],
        topic=topic("unheard"),
        settings={"failover.webhook.url": f"http://{NOBODY}/"},
    )
    create_topic(stage.source, stage.topic, config={"retention.ms": "-1"})
    produce(stage.source, stage.topic, numbered(10))
    stage.mirror()
    said: list[StepEvent] = []

    report = stage.fail_over(say=said.append)

    assert report.procedure.is_over
    told = next(event.text for event in said if event.step == "switch" and event.what == "done")
    assert told.startswith("failover.webhook.url: 127.0.0.1: ")


def test_hooks_that_fail_leave_the_last_step_to_be_done_again(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    switch = tmp_path / "switched"
    stage = Stage(
        folder=tmp_path,
        source=pair["A"],
        target=pair["B"],
        topic=topic("hooked"),
        settings={"failover.after.command": f"ls {switch}"},
    )
    create_topic(stage.source, stage.topic, config={"retention.ms": "-1"})
    produce(stage.source, stage.topic, numbered(10))
    stage.mirror()

    with pytest.raises(RecoveryRefused, match=r"failover.after.command.*run this command again"):
        stage.fail_over()
    switch.touch()
    report = stage.fail_over()

    assert report.procedure.is_over
    assert [step.name for step in report.procedure.done] == ["check", "fence", "groups", "switch"]
