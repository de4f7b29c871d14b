"""The commands against real clusters: what they say, where they say it, how they end."""

from __future__ import annotations

import contextlib
import io
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from heliograph.cli.app import main
from heliograph.config.load import load_config
from heliograph.model import ClusterAlias, FlowId
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.blocks import blocks_of
from tests.kit.clusters import FAST_JAVA, TopicNames
from tests.kit.guide import missing_lines
from tests.kit.inside import carry
from tests.kit.leasing import LeasesAside
from tests.kit.mirror import write_config
from tests.kit.records import (
    NewRec,
    Transaction,
    numbered,
    produce,
    produce_transactions,
    read_all,
)
from tests.kit.runs import ROOT, WITHOUT_SPARK, running_mirror
from tests.kit.topics import create_topic, wait_until

FLOW = FlowId(source=ClusterAlias("cliA"), target=ClusterAlias("cliB"))
DEAD = "127.0.0.1:1"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOnce:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


def heliograph(*arguments: str | Path) -> LogOnce:
    """The command line in this process, as its entry point runs it."""
    out, err = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, ["heliograph", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    finally:
        sys.argv = before
    return LogOnce(code=code, out=out.getvalue(), err=err.getvalue())


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrored:
    file: Path
    plain: str
    committed: str


@pytest.fixture(scope="module")
def mirrored(
    pair: dict[str, LocalCluster], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mirrored]:
    """Two topics, mirrored by a driver that is gone."""
    plain, committed = "cli-plain", "cli-committed"
    # The kit's timestamps are of 2023: a broker that looks at retention would remove them.
    for_ever = {"retention.ms": "-1"}
    create_topic(pair["A"], plain, partitions=2, config=for_ever)
    create_topic(pair["A"], committed, config=for_ever)
    produce(pair["A"], plain, numbered(400, partitions=2))
    halves = [Transaction(records=numbered(10, start=10 * n), commit=n % 2 == 0) for n in range(6)]
    produce_transactions(pair["A"], committed, halves, transactional_id="cli")
    file = write_config(
        tmp_path_factory.mktemp("cli") / "mm2.properties",
        {"cliA": pair["A"], "cliB": pair["B"]},
        {"cliA->cliB": {"topics": f"{plain}, {committed}"}},
    )
    carry(file)
    yield Mirrored(file=file, plain=plain, committed=committed)


def test_a_plan_of_fresh_topics_says_what_would_be_created(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    wanted, unwanted = create_topic(pair["A"], topic("new"), partitions=3), topic("out")
    create_topic(pair["A"], unwanted)
    file = write_config(
        tmp_path / "mm2.properties",
        {"freshA": pair["A"], "freshB": pair["B"]},
        {"freshA->freshB": {"topics": f"{wanted},{unwanted}", "topics.exclude": unwanted}},
    )

    said = heliograph("plan", file, "--json")

    (flow,) = said.document["flows"]
    assert said.code == 0
    assert [(t["source"], t["target"], t["action"]) for t in flow["topics"]] == [
        (wanted, f"freshA.{wanted}", "create")
    ]
    assert [(t["name"], t["partitions"]) for t in flow["create"]] == [(f"freshA.{wanted}", 3)]
    left_out = {row["topic"]: row["verdict"] for row in flow["left_out"]}
    assert left_out[unwanted] == "excluded"


def test_a_plan_names_other_data_and_a_replication_factor_too_high(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    occupied, fresh = create_topic(pair["A"], topic("full")), create_topic(pair["A"], topic("rf"))
    create_topic(pair["B"], f"busyA.{occupied}")
    produce(pair["B"], f"busyA.{occupied}", [NewRec(value=b"other")])
    file = write_config(
        tmp_path / "mm2.properties",
        {"busyA": pair["A"], "busyB": pair["B"]},
        {
            "busyA->busyB": {
                "topics": f"{occupied}, {fresh}",
                "replication.factor": "3",
                "on.existing": "refuse",
            }
        },
    )

    said = heliograph("plan", file)

    assert said.code == 1
    assert f"problem: busyA.{occupied}: already holds 1 other record" in said.out
    assert f"problem: busyA.{fresh}: replication.factor is 3" in said.out
    ledger = "heliograph-ledger.busyA.internal"
    assert f"problem: {ledger}: replication.factor is 3, cluster busyB has 1 broker up" in said.out


def test_a_plan_names_two_flows_that_write_one_topic(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = create_topic(pair["A"], topic("twice"))
    identity = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
    policy = {"topics": name, "replication.policy.class": identity}
    file = write_config(
        tmp_path / "mm2.properties",
        {"oneA": pair["A"], "twoA": pair["A"], "bothB": pair["B"]},
        {"oneA->bothB": policy, "twoA->bothB": policy},
    )

    said = heliograph("plan", file)

    assert said.code == 1
    assert "written by more than one flow: oneA->bothB, twoA->bothB" in said.out


def test_a_plan_of_mirrored_topics_takes_its_own_records_for_its_own(mirrored: Mirrored) -> None:
    said = heliograph("plan", mirrored.file, "--json")

    (flow,) = said.document["flows"]
    assert said.code == 0
    assert all(topic["begun"] and topic["action"] is None for topic in flow["topics"])
    assert not any("other records" in note["text"] for note in flow["notes"])


def test_status_after_the_mirror_ended_tells_positions_and_that_nobody_carries_it(
    mirrored: Mirrored,
) -> None:
    said = heliograph("status", mirrored.file, "--json")

    (flow,) = said.document["flows"]
    lanes = {(lane["topic"], lane["partition"]): lane for lane in flow["lanes"]}
    assert said.code == 3
    assert flow["carried_by"] is None
    assert flow["waiting"] == []
    assert flow["lag_records"] == 0
    assert lanes[mirrored.plain, 1]["position"] == 200
    assert lanes[mirrored.plain, 1]["state"] == "stopped"
    assert lanes[mirrored.plain, 1]["offsets"] == "identical"
    assert lanes[mirrored.committed, 0]["position"] == 30
    assert lanes[mirrored.committed, 0]["mapped_because"].startswith("gap")


def test_status_as_a_table_has_a_row_a_topic_and_lanes_only_when_asked(mirrored: Mirrored) -> None:
    short = heliograph("status", mirrored.file, "--topic", mirrored.plain)
    long = heliograph("status", mirrored.file, "--topic", mirrored.plain, "--lanes")

    assert mirrored.committed not in short.out
    assert f"cliA->cliB/{mirrored.plain}-0" not in short.out
    assert f"cliA->cliB/{mirrored.plain}-0" in long.out
    assert "2 lanes, 400 mirrored, lag 0, lost 0; not running" in short.out


def test_status_shows_lanes_that_never_began_and_why(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    busy, fresh = create_topic(pair["A"], topic("busy")), create_topic(pair["A"], topic("fresh"))
    create_topic(pair["B"], f"waitA.{busy}")
    produce(pair["B"], f"waitA.{busy}", [NewRec(value=b"other")])
    produce(pair["A"], fresh, numbered(7))
    file = write_config(
        tmp_path / "mm2.properties",
        {"waitA": pair["A"], "waitB": pair["B"]},
        {"waitA->waitB": {"topics": f"{busy}, {fresh}", "on.existing": "refuse"}},
    )

    said = heliograph("status", file, "--json")
    other = heliograph("status", file, "--topic", f"waitA.{busy}")

    (flow,) = said.document["flows"]
    assert said.code == 3
    assert {(lane["topic"], lane["state"], lane["lag_records"]) for lane in flow["waiting"]} == {
        (busy, "stalled: target not empty", 0),
        (fresh, "waiting: not created", 7),
    }
    assert flow["lag_records"] == 7
    assert other.code == 1
    assert f"no flow mirrors a source topic waitA.{busy}" in other.err


def test_status_without_the_source_shows_positions_and_an_unknown_lag(
    mirrored: Mirrored, tmp_path: Path
) -> None:
    lines = mirrored.file.read_text().splitlines()
    dark = [f"cliA.bootstrap.servers = {DEAD}" if "cliA.boot" in line else line for line in lines]
    file = tmp_path / "dark.properties"
    file.write_text("\n".join(dark))

    said = heliograph("status", file, "--json")

    (flow,) = said.document["flows"]
    assert said.code == 1
    assert "cliA" in said.document["unreachable"]
    assert flow["mirrored_records"] == 430
    assert flow["lag_records"] is None


def test_the_ledger_shows_producer_runs_and_starts(mirrored: Mirrored) -> None:
    said = heliograph("ledger", mirrored.file, "--topic", mirrored.committed, "--runs", "--json")

    (flow,) = said.document["flows"]
    (lane,) = flow["lanes"]
    assert said.code == 0
    assert flow["producer"]["id"] >= 0
    assert lane["position"] == 30
    assert len(lane["starts"]) == 1
    assert len(lane["runs"]) == lane["run_count"] > 1
    assert "position" in heliograph("ledger", mirrored.file).out


def test_an_offset_is_translated_to_the_same_record_and_back(
    pair: dict[str, LocalCluster], mirrored: Mirrored
) -> None:
    source = read_all(pair["A"], mirrored.committed)[0]
    target = read_all(pair["B"], f"cliA.{mirrored.committed}")[0]
    lane = ("--topic", mirrored.committed, "--partition", "0", "--json")

    for place in (0, 9, 10, 25, 29):
        there = heliograph("ledger", mirrored.file, "--translate", str(source[place].offset), *lane)
        back = heliograph(
            "ledger", mirrored.file, "--translate", str(target[place].offset), "--back", *lane
        )
        assert there.document["to"]["offset"] == target[place].offset
        assert there.document["exact"]
        assert back.document["to"]["offset"] == source[place].offset


def test_translation_asks_for_what_it_needs(mirrored: Mirrored) -> None:
    said = heliograph("ledger", mirrored.file, "--translate", "3")

    assert said.code == 2
    assert "--topic and --partition" in said.err


def test_status_from_outside_follows_a_mirror_that_runs_and_a_second_driver_stands_by(
    pair: dict[str, LocalCluster], mirrored: Mirrored
) -> None:
    config = load_config(mirrored.file)
    second = LeasesAside(config, lease_s=3.0)
    try:
        with running_mirror(mirrored.file, program=WITHOUT_SPARK) as mirror:
            second.start()
            second.wait_known(10.0)
            held_back = not second.leads(FLOW)
            produce(pair["A"], mirrored.plain, numbered(100, partitions=2, start=400))
            # Lanes are `starting` until the slot has noted the first head of each, seconds later.
            wait_until(lambda: states_of(mirrored.file) == {"idle"}, "the lanes to be idle")
            said = heliograph("status", mirrored.file, "--topic", mirrored.plain, "--json")
            code = mirror.stop()
        wait_until(lambda: second.leads(FLOW), "the second driver to take over", timeout_s=5.0)
    finally:
        second.close()

    (flow,) = said.document["flows"]
    assert held_back
    assert (said.code, code) == (0, 0)
    assert flow["carried_by"]["pid"] > 0
    assert flow["mirrored_records"] == 500
    assert {lane["state"] for lane in flow["lanes"]} == {"idle"}


def test_a_silent_leader_is_followed_by_one_other_and_steps_down_when_it_is_back(
    mirrored: Mirrored,
) -> None:
    config = load_config(mirrored.file)
    drivers = [LeasesAside(config, lease_s=1.5) for _ in range(3)]
    silent, first, other = drivers
    try:
        silent.start()
        wait_until(lambda: silent.leads(FLOW), "the first to lead")
        silent.suspend()
        first.start()
        other.start()

        wait_until(lambda: first.leads(FLOW) or other.leads(FLOW), "one of the two to take over")
        both = first.leads(FLOW) and other.leads(FLOW)
        silent.wake(FLOW)

        assert not both
        assert not silent.leads(FLOW)
    finally:
        for driver in drivers:
            driver.close()


def test_a_bad_file_gets_all_its_problems_and_exit_code_2(tmp_path: Path) -> None:
    file = tmp_path / "bad.properties"
    file.write_text("clusters = A, B\nA.bootstrap.servers = a:1\nA->B.enabled = maybe\n")

    said = heliograph("plan", file)

    assert said.code == 2
    assert said.out == ""
    assert "A->B.enabled" in said.err
    assert "B.bootstrap.servers" in said.err


@pytest.mark.parametrize("command", ["plan", "status", "ledger"])
def test_a_cluster_that_is_down_is_one_sentence_with_its_alias(
    command: str, tmp_path: Path
) -> None:
    file = write_config(
        tmp_path / "mm2.properties", {"nearA": DEAD, "farB": DEAD}, {"nearA->farB": {}}
    )

    said = heliograph(command, file)

    assert said.code == 1
    assert "cluster farB" in said.out + said.err or "cluster nearA" in said.out + said.err
    assert "Traceback" not in said.err


def test_the_demo_loses_and_repeats_nothing_and_stays_up_where_asked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(*FAST_JAVA)
    said = tmp_path / "said"
    command = [sys.executable, "-m", "heliograph", "demo", "--records", "2000", "--keep"]

    with (
        said.open("wb") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as demo,
    ):
        invitation = re.compile(r"heliograph status (\S+) --watch")
        try:
            wait_until(
                lambda: demo.poll() is not None or bool(invitation.search(said.read_text())),
                "all compared, and an invitation",
                timeout_s=150,
            )
            invited = invitation.search(said.read_text())
            assert invited, said.read_text()[-4000:]
            states = states_of(Path(invited[1]))
            demo.send_signal(signal.SIGINT)
            told, _ = demo.communicate(timeout=60)
        finally:
            demo.kill()

    assert states <= {"idle", "copying"}
    assert demo.returncode == 0, said.read_text()[-4000:]
    assert "lost 0, repeated 0" in told.splitlines()[-1]
    assert "group billing moves to B" in said.read_text()
    undated = re.sub(r"^\d{4}-\S+ ", "", said.read_text(), flags=re.MULTILINE)
    assert [line for line in demo_of_the_readme() if missing_lines(line, undated + told)] == []


def demo_of_the_readme() -> list[str]:
    """What the page says is printed, but what is printed now and then; folded lines are one."""
    (block,) = (each for each in blocks_of(ROOT / "README.md") if "$ make demo" in each.body)
    told = block.body.replace("aborted\ntransactions", "aborted transactions").splitlines()[1:]
    return [line for line in told if " records/s" not in line]


def states_of(file: Path) -> set[str]:
    (flow,) = heliograph("status", file, "--json").document["flows"]
    return {lane["state"] for lane in flow["lanes"]}
