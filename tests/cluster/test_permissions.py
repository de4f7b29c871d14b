"""The least a mirror must be allowed, role by role: it works with that, and says what is missing.

The grants below are those of `docs/guides/permissions.md`, for a flow `A->B` with the topic
`orders` and the group `billing`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import pytest

from heliograph.broker.range_reader import TIMEOUT_S_DEFAULT, read_as_group
from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.doctor.allowed import ask_allowed
from heliograph.doctor.finding import Finding, Severity
from heliograph.doctor.permissions import needs_of, permission_findings
from heliograph.errors import BrokerError, NotAuthorised
from heliograph.model import TopicName
from heliograph.model import TopicPartition as Partition
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.acls import Grant, grant, is_granted, on, revoke, without
from tests.kit.guarded import guarded_clusters, role_lines
from tests.kit.permissions import (
    CASES,
    CHECKPOINTS,
    FACTORS,
    FLOW,
    INTERVALS,
    LEDGER,
    SOURCE,
    SYNCS,
    TARGET,
    A,
    B,
    Case,
    Inside,
    arrived,
    cluster_grant,
    commit,
    committed,
    group_grant,
    topic_grant,
)
from tests.kit.records import (
    Transaction,
    assert_same_records,
    numbered,
    produce,
    produce_transactions,
)
from tests.kit.runs import WITHOUT_SPARK, running_mirror
from tests.kit.topics import create_topic, set_topic_config, topic_config, wait_until

GUIDE_ROW: Final = re.compile(
    r"^\| (\w+) \| ([A-Z_]+) \| (topics?|group|cluster)(?: `([^`]+)`)? \|", re.MULTILINE
)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, LocalCluster]]:
    """A and B, where each role of each is a user that may do what is listed and no more."""
    with guarded_clusters(tmp_path_factory.mktemp("guarded"), "reader") as clusters:
        grant(clusters["A"], [*SOURCE, *on("reader", "topic", "orders", "READ")])
        grant(clusters["B"], TARGET)
        create_topic(clusters["A"], "orders", config={"retention.ms": "-1"})
        produce(clusters["A"], "orders", numbered(200))
        commit(clusters["A"], "billing", "orders", 150)
        yield clusters


@pytest.fixture(scope="module")
def config(guarded: dict[str, LocalCluster], tmp_path_factory: pytest.TempPathFactory) -> Path:
    lines = [
        "clusters = A, B",
        "A->B.enabled = true",
        "A->B.topics = orders",
        "A->B.groups = billing",
        "A->B.sync.group.offsets.enabled = true",
        "offset.lag.max = 0",
        "master = local[1]",
        "slots = 1",
        "offset-syncs.topic.replication.factor = 1",
        *(f"{name}.factor = 1" for name in FACTORS),
        *(f"{name} = 1" for name in INTERVALS),
    ]
    lines += role_lines(guarded)
    path = tmp_path_factory.mktemp("permissions") / "mm2.properties"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_run_with_the_least_permissions_does_everything(
    guarded: dict[str, LocalCluster], config: Path
) -> None:
    source, target = guarded["A"], guarded["B"]
    with running_mirror(config, program=WITHOUT_SPARK) as mirror:
        set_topic_config(source, "orders", {"retention.bytes": "12345678"})

        wait_until(lambda: arrived(target, "A.orders") == 200, "records on B", timeout_s=120)
        assert_same_records(source, target, "orders", "A.orders")
        for cluster, topic in (
            (target, "heartbeats"),
            (target, "A.heartbeats"),
            (target, CHECKPOINTS),
            (source, SYNCS),
        ):
            wait_until(
                lambda cluster=cluster, topic=topic: arrived(cluster, topic) > 0,  # type: ignore[misc]
                f"records in {topic} on {cluster.alias}",
                timeout_s=60,
            )
        wait_until(
            lambda: committed(target, "billing", "A.orders") == 150, "billing on B", timeout_s=60
        )
        wait_until(
            lambda: topic_config(target, "A.orders")["retention.bytes"] == "12345678",
            "the setting on B",
            timeout_s=60,
        )
        (reader,) = on("reader", "topic", "A.orders", "READ")
        wait_until(lambda: is_granted(target, reader), "the reader's ACL on B", timeout_s=60)

    assert mirror.complaints == []


@pytest.fixture(scope="module")
def mirrored(config: Path, guarded: dict[str, LocalCluster]) -> Path:
    """Everything is there and was done once, with all permissions."""
    with closing(Inside(config, guarded)) as inside:
        inside.beat()
        inside.beat_back()
        inside.sync_offsets()
        inside.checkpoint()
        inside.plan_group_offsets()
        inside.follow_configs()
        inside.follow_acls()
    return config


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_missing_permission_is_named_with_its_cluster_and_resource(
    case: Case,
    mirrored: Path,
    guarded: dict[str, LocalCluster],
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = guarded[case.alias]
    with ExitStack() as stack:
        inside = stack.enter_context(closing(Inside(mirrored, guarded)))
        if case.left is not None:
            grant(cluster, [case.left])
            stack.callback(revoke, cluster, [case.left])
        stack.enter_context(without(cluster, case.missing))
        caplog.set_level(logging.INFO)

        told = said(case.act, inside) + caplog.text

        assert any(case.sentence.search(line) for line in told.splitlines()), told


def test_a_ledger_that_may_not_be_written_stalls_a_lane_with_gaps_until_it_may(
    mirrored: Path, guarded: dict[str, LocalCluster]
) -> None:
    """Such a lane said that it was copying, for ever."""
    source, target = guarded["A"], guarded["B"]
    gaps = [Transaction(records=numbered(3), commit=number % 2 == 0) for number in range(4)]
    (writing,) = on("producer", "topic", LEDGER, "WRITE")
    with closing(Inside(mirrored, guarded)) as inside:
        inside.catch_up()

        with without(target, writing):
            produce_transactions(source, "orders", gaps, transactional_id="gaps")
            wait_until(lambda: bool(inside.stalls), "a stalled lane", timeout_s=60)
            stalls = inside.stalls
        inside.catch_up()

    assert any(
        f"the ledger cannot be written: cluster B: {LEDGER}-0: missing permission WRITE on topic"
        in stall
        for stall in stalls
    ), stalls
    assert_same_records(source, target, "orders", "A.orders")


def test_a_group_asked_for_by_name_is_missed_though_no_list_shows_it(
    mirrored: Path, guarded: dict[str, LocalCluster]
) -> None:
    hidden = without(guarded["A"], group_grant("DESCRIBE"), cluster_grant("DESCRIBE"))
    with closing(Inside(mirrored, guarded)) as inside, hidden:
        told = said(Inside.checkpoint, inside)

    assert "cluster A: missing permission DESCRIBE on group billing" in told


def test_a_shadow_group_that_may_not_be_read_is_named_before_any_timeout(
    mirrored: Path, guarded: dict[str, LocalCluster]
) -> None:
    """Brokers refuse to say who coordinates it, and a client asks them again and again."""
    place = Partition(topic=TopicName("A.orders"), partition=0)
    began_s = time.monotonic()

    with pytest.raises(NotAuthorised) as told:
        read_as_group(
            load_config(mirrored).target_of(FLOW),
            "heliograph-drill.billing",
            {place: 1},
            bytes_max=1_000,
            read_committed=True,
        )

    assert str(told.value) == (
        "cluster B: missing permission READ on group heliograph-drill.billing"
    )
    assert time.monotonic() - began_s < TIMEOUT_S_DEFAULT / 2


def test_the_doctor_finds_what_is_missing_without_doing_it(
    mirrored: Path, guarded: dict[str, LocalCluster]
) -> None:
    config = load_config(mirrored)
    taken = (
        (guarded["A"], topic_grant("consumer", "orders", "READ")),
        (guarded["A"], cluster_grant("DESCRIBE")),
        (guarded["B"], topic_grant("producer", LEDGER, "WRITE")),
        (guarded["B"], Grant(user="admin", kind="group", name="billing", operation="READ")),
    )

    with ExitStack() as stack:
        all_granted = permissions_found(config)
        for cluster, each in taken:
            stack.enter_context(without(cluster, each))
        missing = permissions_found(config)

    assert {each.severity for each in all_granted} == {Severity.OK}
    assert {each.what for each in missing if each.severity is Severity.PROBLEM} == {
        "its consumer lacks READ on topic orders",
        "its admin lacks DESCRIBE on the cluster",
        f"its producer lacks WRITE on topic {LEDGER}",
        "its admin lacks READ on group billing",
    }


def permissions_found(config: MirrorConfig) -> list[Finding]:
    async def ask() -> list[Finding]:
        copies = {TopicName(name): TopicName(f"A.{name}") for name in ("orders", "heartbeats")}
        flow = config.flow(FLOW)
        needs = needs_of(config, flow, copies, ["billing"])
        clients = list(dict.fromkeys((need.cluster, need.role) for need in needs))
        allowed = {
            (alias, role): await ask_allowed(
                config.clusters[alias],
                role,
                [need for need in needs if (need.cluster, need.role) == (alias, role)],
                answer_s_max=10,
            )
            for alias, role in clients
        }
        return permission_findings(needs, allowed)

    return asyncio.run(ask())


def said(act: Callable[[Inside], None], inside: Inside) -> str:
    try:
        act(inside)
    except BrokerError as exc:
        return f"{exc}\n"
    return ""


def test_every_permission_of_the_list_has_been_taken_away_once() -> None:
    tried = {(case.alias, case.missing) for case in CASES}
    # Heartbeats of the source are written like any other topic, which `A.orders` stands for.
    alike = {(B, topic_grant("producer", "A.heartbeats", "WRITE"))}

    listed = {(A, each) for each in SOURCE} | {(B, each) for each in TARGET}

    assert listed - tried - alike == set()


@pytest.mark.parametrize(("side", "grants"), [("source", SOURCE), ("target", TARGET)])
def test_the_guide_lists_exactly_these_permissions(side: str, grants: list[Grant]) -> None:
    guide = (Path(__file__).parents[2] / "docs/guides/permissions.md").read_text(encoding="utf-8")
    section = guide.partition(f"\n## On the {side}\n")[2].partition("\n## ")[0]

    rows = GUIDE_ROW.findall(section)
    listed = {
        Grant(
            user=user,
            operation=operation,
            kind="topic" if kind == "topics" else kind,
            name=name.removesuffix("*") or "kafka-cluster",
            prefixed=kind == "topics",
        )
        for user, operation, kind, name in rows
    }

    assert len(rows) == len(grants)
    assert listed == set(grants)


def test_deleting_topics_is_not_among_the_least(
    mirrored: Path, guarded: dict[str, LocalCluster]
) -> None:
    with closing(Inside(mirrored, guarded)) as inside:
        told = said(Inside.delete, inside)

    assert told == "cluster B: missing permission DELETE on topic A.orders\n"
