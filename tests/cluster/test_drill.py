"""`heliograph drill` on real clusters: what it finds, what it leaves alone, when `run` does it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from heliograph.broker.blocking import Changed
from heliograph.broker.clients import Clients
from heliograph.broker.groups import GroupAdmin
from heliograph.cli import app as command_line
from heliograph.compat.checkpoints import CheckpointsJob
from heliograph.config.load import load_config
from heliograph.drill.schedule import DrillJob
from heliograph.drill.shadow_groups import commit_shadows, new_tag
from heliograph.driver.activity import FlowActivity
from heliograph.driver.jobs import periodic_jobs
from heliograph.driver.periodic import PeriodicJobs
from heliograph.errors import DrillFailed
from heliograph.ledger.drill_note import LAST_SUBJECT
from heliograph.ledger.entries import (
    MemoKey,
    Tombstone,
)
from heliograph.ledger.leadership import Leaderships
from heliograph.ledger.service import LedgerService
from heliograph.model import FlowId, TopicName, TopicPartition
from tests.kit.bad_copies import copied_badly
from tests.kit.clusters import TopicNames
from tests.kit.drilling import Pair, Scene, scene_of, webhook
from tests.kit.groups import commit, committed
from tests.kit.inside import carry
from tests.kit.leasing import NoSlots
from tests.kit.mirror import lasting_topic
from tests.kit.records import (
    Transaction,
    numbered,
    produce,
    produce_transactions,
)
from tests.kit.topics import delete_records_before


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Ask = Callable[..., Answer]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ask:
    """The command line as a shell sees it: exit code and both streams."""

    def run(*words: str | Path) -> Answer:
        monkeypatch.setattr(sys, "argv", ["heliograph", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            command_line.main()
        out, err = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return Answer(code, out, err)

    return run


@pytest.fixture(scope="module")
def good(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """100 records in each partition of `orders`, payments with an aborted transaction between.

    `billing` has read 7 records since its checkpoint, and 5 records are not mirrored yet.
    """
    scene = scene_of(pair, tmp_path_factory.mktemp("drill"), "drillgood")
    lasting_topic(pair["A"], scene.orders, partitions=2)
    payments = lasting_topic(pair["A"], "drillgood-payments")
    produce(pair["A"], scene.orders, numbered(200, partitions=2))
    produce_transactions(
        pair["A"],
        payments,
        [
            Transaction(records=numbered(30)),
            Transaction(records=numbered(10, start=30), commit=False),
            Transaction(records=numbered(30, start=40)),
        ],
        transactional_id="drillgood",
    )
    scene.at_source({0: 40, 1: 100})
    scene.at_source({0: 20}, group="drillgood-audit", topic=payments)
    carry(scene.file, checkpoints=True)
    scene.at_source({0: 47})
    produce(pair["A"], scene.orders, numbered(5, start=200))
    return scene


# What a drill finds.


def test_a_drill_of_a_sound_flow_passes_and_leaves_everything_as_it_was(
    good: Scene, ask: Ask, tmp_path: Path
) -> None:
    source, target = good.pair["A"], good.pair["B"]
    page = tmp_path / "drill.html"
    niceness = os.nice(0)
    before = [
        committed(side, good.group, t)
        for side in (source, target)
        for t in (good.orders, good.copy)
    ]

    found = ask("drill", good.file, "--json", "--report", page)

    after = [
        committed(side, good.group, t)
        for side in (source, target)
        for t in (good.orders, good.copy)
    ]
    assert (found.code, found.document["reasons"]) == (0, [])
    assert before == after == [{0: 47, 1: 100}, {}, {}, {}]
    assert good.shadows() == []
    assert os.nice(0) == niceness
    assert found.document["rpo"]["records"] == 5
    assert found.document["rpo"]["seconds"] > 0
    billing, audit = sorted(found.document["groups"], key=lambda g: g["group"], reverse=True)
    assert (billing["repeated_records"], billing["equal_records"]) == (7, 200)
    assert (audit["repeated_records"], audit["equal_records"]) == (0, 60)
    steps = [step["name"] for step in found.document["steps"] if step["in_rto"]]
    assert steps == [
        "reach the target",
        "read the ledger and the checkpoints",
        "place the groups by the map",
        "commit the groups",
        "go on reading",
    ]
    assert "PASS" in "".join(ElementTree.fromstring(page.read_text()).itertext())
    last = good.last_drill()
    assert last is not None
    assert (last.verdict, last.rpo_records, last.repeated_records) == ("pass", 5, 7)
    assert "last drill passed" in ask("status", good.file).out


def test_tables_name_steps_topics_and_groups_and_a_limit_can_fail_the_drill(
    good: Scene, ask: Ask
) -> None:
    found = ask("drill", good.file, "--group", ".*-billing", "--rpo-max-seconds", "0.001")

    assert found.code == 3
    assert "failed: RPO is" in found.out
    assert "the drill failed" in found.out
    for words in ("go on reading", good.orders, good.group):
        assert words in found.out
    assert "audit" not in found.out
    # A drill of some groups is not the flow's rehearsal, so the ledger keeps the other one.
    last = good.last_drill()
    assert last is None or last.verdict == "pass"


def test_records_that_are_gone_on_the_target_fail_the_drill_with_their_place(
    pair: Pair, topic: TopicNames, tmp_path: Path, ask: Ask
) -> None:
    scene = scene_of(pair, tmp_path, topic("drilllost"))
    lasting_topic(pair["A"], scene.orders)
    produce(pair["A"], scene.orders, numbered(100))
    scene.at_source({0: 10})
    carry(scene.file, checkpoints=True)
    delete_records_before(pair["B"], scene.copy, {0: 30})

    found = ask("drill", scene.file, "--json")

    (group,) = found.document["groups"]
    (missing,) = group["findings"]
    assert found.code == 3
    assert (missing["kind"], missing["source_start"], missing["source_end"]) == ("missing", 10, 30)
    assert (missing["target_topic"], missing["target_start"]) == (scene.copy, 10)
    assert missing["target_end"] == 30
    assert (group["skipped_records"], found.document["lost_records"]) == (20, 20)
    assert scene.shadows() == []


def test_a_changed_record_and_a_missing_one_are_named(
    pair: Pair, topic: TopicNames, tmp_path: Path, ask: Ask
) -> None:
    scene = scene_of(pair, tmp_path, topic("drillbad"))
    copied_badly(scene, changed=25, missing=40)

    found = ask("drill", scene.file, "--json")

    (group,) = found.document["groups"]
    told = [
        (one["kind"], one["source_start"], one["records"], one["note"]) for one in group["findings"]
    ]
    assert found.code == 3
    assert told == [("changed", 25, 1, "value"), ("missing", 40, 1, "not in the map")]
    assert group["equal_records"] == 58


def test_a_group_that_the_target_knows_nothing_of_fails_the_drill(good: Scene, ask: Ask) -> None:
    late = f"{good.group}-late"
    commit(good.pair["A"], late, good.orders, {1: 3})

    found = ask("drill", good.file, "--group", late, "--json")

    (group,) = found.document["groups"]
    assert found.code == 3
    assert [one["partition"] for one in group["unplaced"]] == [1]
    assert (
        f"group {late}: {good.orders}-1 has no place on the target"
        in (found.document["reasons"][0])
    )
    GroupAdmin(good.config.source_of(good.flow)).delete_each([late])


# What is wrong with the question.


def test_bad_input_has_a_sentence_and_an_exit_code(good: Scene, ask: Ask, tmp_path: Path) -> None:
    dead = tmp_path / "dead.properties"
    dead.write_text(
        good.file.read_text().replace(
            f"{good.flow.source}.bootstrap.servers = {good.pair['A'].bootstrap}",
            f"{good.flow.source}.bootstrap.servers = 127.0.0.1:1",
        )
    )
    empty = scene_of(good.pair, tmp_path, "drillnever")

    no_group = ask("drill", good.file, "--group", "nobody")
    no_source = ask("drill", dead)
    no_ledger = ask("drill", empty.file)
    no_ledger_to_write = ask("drill", empty.file, "--every", "7d")
    usage = [
        ask("drill", good.file, "--every", "often"),
        ask("drill", good.file, "--group", "("),
        ask("drill", good.file, "--flow", "X->Y"),
        ask("drill", good.file, "--every", "7d", "--report", tmp_path / "x.html"),
        ask("drill", good.file, "--report", tmp_path / "absent" / "x.html"),
        ask("drill", good.file, "--report", tmp_path),
    ]

    assert no_group.code == no_source.code == no_ledger.code == no_ledger_to_write.code == 1
    assert "matches 'nobody'; it follows drillgood-audit, drillgood-billing" in no_group.err
    assert "a drill needs both clusters" in no_source.err
    assert "nothing was mirrored yet" in no_ledger.err
    assert "nothing was mirrored yet" in no_ledger_to_write.err
    assert [answer.code for answer in usage] == [2] * 6


def test_a_flow_without_groups_is_drilled_for_its_lanes(
    pair: Pair, topic: TopicNames, tmp_path: Path, ask: Ask
) -> None:
    scene = scene_of(pair, tmp_path, topic("drillalone"))
    lasting_topic(pair["A"], scene.orders)
    produce(pair["A"], scene.orders, numbered(10))
    carry(scene.file, checkpoints=True)
    produce(pair["A"], scene.orders, numbered(3, start=10))

    found = ask("drill", scene.file, "--json")

    assert (found.code, found.document["rpo"]["records"]) == (0, 3)
    assert found.document["groups"] == []
    assert any("only lanes and ledger" in note for note in found.document["notes"])


# Shadow groups.


def test_what_a_killed_drill_left_behind_is_removed_by_the_next(good: Scene, ask: Ask) -> None:
    script = (
        "import os, signal, sys\n"
        "from heliograph.drill.reading import Sampler\n"
        "Sampler.read_target = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from heliograph.cli.app import app\n"
        "app('drill')(['drill', sys.argv[1]])\n"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(good.file)], check=False)
    left = good.shadows()

    found = ask("drill", good.file, "--group", ".*-audit", "--json")

    assert killed.returncode == -signal.SIGKILL
    assert left == [f"heliograph-drill.{good.group}"]
    assert found.code == 0
    assert good.shadows() == []
    told = {step["name"]: step["told"] for step in found.document["steps"]}
    assert told["clear away old shadows"] == "removed 2 that a drill had left behind"


def test_a_group_of_that_name_that_is_somebodys_own_is_refused_and_left_alone(
    good: Scene, ask: Ask
) -> None:
    target = GroupAdmin(good.config.target_of(good.flow))
    name = f"heliograph-drill.{good.group}"
    commit(good.pair["B"], name, good.copy, {0: 3})

    found = ask("drill", good.file)

    assert found.code == 1
    assert f"a group {name} is there that no drill has made" in found.err
    assert [at.offset for at in target.offsets([name])[name].values()] == [3]
    target.delete_each([name])


def test_shadows_of_a_drill_that_runs_are_refused_and_left_to_it(good: Scene, ask: Ask) -> None:
    target = GroupAdmin(good.config.target_of(good.flow))
    at = TopicPartition(topic=TopicName(good.copy), partition=0)
    commit_shadows(target, {good.group: {at: 5}}, new_tag(good.flow))

    found = ask("drill", good.file)

    assert found.code == 1
    assert f"a drill of {good.flow} is under way" in found.err
    assert good.shadows() == [f"heliograph-drill.{good.group}"]
    target.delete_each(good.shadows())


def test_shadows_are_followed_by_no_flow_whatever_it_asks_for(good: Scene) -> None:
    flow = good.config.flow(good.flow)
    every = flow.model_copy(update={"groups": flow.groups.model_copy(update={"include": (".*",)})})
    config = good.config.model_copy(update={"pairs": (every,)})
    name = f"heliograph-drill.{good.group}-back"
    commit(good.pair["A"], name, good.orders, {0: 3})

    with closing(Clients(config)) as clients, closing(LedgerService(config.clusters)) as ledgers:
        loops = periodic_jobs(config, clients, ledgers, dict)
        (follower,) = [loop.follower for loop in loops if isinstance(loop, CheckpointsJob)]
        follower.look()

    assert good.group in follower.followed
    assert name not in follower.followed
    GroupAdmin(config.source_of(good.flow)).delete_each([name])


# The schedule.


class Counted(DrillJob):
    steps = 0

    def step(self) -> None:
        try:
            super().step()
        finally:
            self.steps += 1


def test_a_drill_that_is_due_is_done_once_and_its_failure_stays_shown(
    pair: Pair, topic: TopicNames, tmp_path: Path, ask: Ask
) -> None:
    with webhook() as (address, heard), ExitStack() as stack:
        scene = scene_of(pair, tmp_path, topic("drilldue"), failover_webhook_url=address)
        copied_badly(scene, changed=25, missing=40)
        config = scene.config
        ledgers = stack.enter_context(closing(LedgerService(config.clusters)))
        idle = DrillJob(config, config.flow(scene.flow), ledgers)
        idle.step()
        scheduled = ask("drill", scene.file, "--every", "7d", "--sample", "30")
        loop = Counted(config, config.flow(scene.flow), ledgers, interval_s=0.1)

        problems = asyncio.run(problems_after(loop, steps=4))

        last = scene.last_drill()
        assert last is not None
        assert (scheduled.code, scheduled.out.count("drilled every 7 d")) == (0, 1)
        assert "within a minute" in scheduled.out
        assert [event["event"] for event in heard] == ["drill failed"]
        assert heard[0]["detail"]["reasons"] == list(last.reasons)
        assert last.verdict == "fail"
        assert last.compared_records == 30
        assert "failed: group" in problems[scene.flow]
        # A driver that starts anew shows it too, and does not drill again.
        with pytest.raises(DrillFailed, match="1 changed"):
            DrillJob(config, config.flow(scene.flow), ledgers).step()
        assert scene.last_drill() == last
        assert "last drill" in ask("status", scene.file).out
        again = ask("drill", scene.file, "--every", "7d", "--json").document
        assert again["next_due_ms"] == last.at_ms + 604_800_000
        assert ask("drill", scene.file, "--every", "off").code == 0
        DrillJob(config, config.flow(scene.flow), ledgers).step()
        assert len(heard) == 1


def test_a_drill_that_cannot_be_done_raises_one_alarm_and_is_noted(
    good: Scene, tmp_path: Path, ask: Ask
) -> None:
    assert ask("drill", good.file, "--every", "7d").code == 0
    with webhook() as (address, heard), ExitStack() as stack:
        text = good.file.read_text().replace(
            f"{good.flow.source}.bootstrap.servers = {good.pair['A'].bootstrap}",
            f"{good.flow.source}.bootstrap.servers = 127.0.0.1:1",
        )
        dead = tmp_path / "dead.properties"
        dead.write_text(f"{text}{good.flow}.failover.webhook.url = {address}\n")
        config = load_config(dead)
        ledgers = stack.enter_context(closing(LedgerService(config.clusters)))
        forget_last(ledgers, good.flow)
        loop = DrillJob(config, config.flow(good.flow), ledgers)

        for _ in range(2):
            with pytest.raises(DrillFailed, match="could not be done"):
                loop.step()

        last = good.last_drill()
        assert last is not None
        assert last.verdict == "not done"
        assert len(heard) == 1
        forget_last(ledgers, good.flow)
    assert ask("drill", good.file, "--every", "off").code == 0


async def problems_after(job: Counted, *, steps: int) -> Mapping[FlowId, str]:
    """What a driver that leads every flow shows after so many steps of its only job."""
    jobs = PeriodicJobs([job], Leaderships(), FlowActivity(NoSlots(), Changed()))
    running = asyncio.create_task(jobs.run())
    async with asyncio.timeout(120):
        while job.steps < steps:
            await asyncio.sleep(0.05)
    running.cancel()
    await jobs.settle()
    return dict(jobs.problems)


def forget_last(ledgers: LedgerService, flow: FlowId) -> None:
    ledgers.note(flow, [Tombstone(key=MemoKey(subject=LAST_SUBJECT))])
