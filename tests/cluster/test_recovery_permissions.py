"""What leaving a cluster, rehearsing that, and coming back must be allowed beside mirroring.

The grants below are those of `docs/guides/permissions.md`, By feature.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.drill.report import DrillOptions
from heliograph.drill.run import drill
from heliograph.errors import BrokerError
from heliograph.failback.command import fail_back
from heliograph.failback.context import FailbackOrder
from heliograph.failback.divergence import Choice
from heliograph.failover.command import FailoverOrder, fail_over
from heliograph.model import ClusterAlias, FlowId
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.acls import Grant, grant, on, without
from tests.kit.guarded import guarded_clusters, role_lines
from tests.kit.inside import carry
from tests.kit.permissions import (
    CHECKPOINTS,
    FLOW,
    SOURCE,
    TARGET,
    Inside,
    arrived,
    commit,
    committed,
)
from tests.kit.records import numbered, produce
from tests.kit.topics import create_topic, wait_until

SHADOWS: Final = "heliograph-drill."
TOLD: Final = on("consumer", "topic", CHECKPOINTS, "READ")
DRILL: Final = [
    *on("consumer", "topic", "A.orders", "READ"),
    *on("consumer", "group", SHADOWS, "READ", prefixed=True),
    *on("admin", "group", SHADOWS, "READ", "DELETE", prefixed=True),
]
FAILBACK: Final = [
    *on("admin", "group", "billing", "READ"),
    *on("admin", "topic", "orders", "READ"),
]


KEPT: Final = FlowId(source=ClusterAlias("C"), target=ClusterAlias("D"))
"""The same clusters under other names, for a flow that keeps the names of its topics."""
SAVED: Final = "heliograph-unmirrored.C"


AT_SOURCE: Final = [
    *on("consumer", "topic", "things", "READ"),
    *on("admin", "topic", "things", "DESCRIBE", "DESCRIBE_CONFIGS"),
    *on("admin", "group", "packing", "DESCRIBE"),
]
"""The guide's table of the source, for the topic `things` and the group `packing`."""


def at_target(flow: FlowId) -> list[Grant]:
    """The guide's table of the target, heartbeats and ACLs left out."""
    ledger, told = (
        f"heliograph-ledger.{flow.source}.internal",
        f"{flow.source}.checkpoints.internal",
    )
    return [
        *on("producer", "topic", "things", "READ", "WRITE"),
        *on("producer", "topic", ledger, "READ", "WRITE"),
        *on("producer", "topic", told, "WRITE"),
        *on("consumer", "topic", told, "READ"),
        *on("admin", "topic", told, "CREATE"),
        *on("admin", "topic", "things", "CREATE", "ALTER", "ALTER_CONFIGS", "READ"),
        *on("admin", "topic", ledger, "CREATE", "DESCRIBE", "DESCRIBE_CONFIGS"),
        *on("admin", "group", "packing", "READ"),
    ]


FAILBACK_KEPT_AT_C: Final = [
    *on("admin", "topic", "things", "DELETE"),
    *on("producer", "topic", "things", "DELETE"),
    *on("consumer", "topic", "heliograph-ledger.D.internal", "READ"),
]
FAILBACK_KEPT_AT_D: Final = [
    *on("consumer", "topic", SAVED, "READ"),
    *on("admin", "topic", SAVED, "CREATE", "DESCRIBE"),
    *on("producer", "topic", SAVED, "WRITE"),
]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, LocalCluster]]:
    with guarded_clusters(tmp_path_factory.mktemp("guarded")) as clusters:
        grant(clusters["A"], SOURCE)
        grant(clusters["B"], [*TARGET, *DRILL])
        create_topic(clusters["A"], "orders")
        produce(clusters["A"], "orders", numbered(200))
        commit(clusters["A"], "billing", "orders", 150)
        yield clusters


@pytest.fixture(scope="module")
def file(guarded: dict[str, LocalCluster], tmp_path_factory: pytest.TempPathFactory) -> Path:
    lines = [
        "clusters = A, B",
        "A->B.enabled = true",
        "A->B.topics = orders",
        "A->B.groups = billing",
        "replication.factor = 1",
        "checkpoints.topic.replication.factor = 1",
        "heartbeats.topic.replication.factor = 1",
        "offset-syncs.topic.replication.factor = 1",
    ]
    lines += role_lines(guarded)
    path = tmp_path_factory.mktemp("permissions") / "mm2.properties"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def config(file: Path, guarded: dict[str, LocalCluster]) -> MirrorConfig:
    """Mirrored, with a checkpoint of the group."""
    with closing(Inside(file, guarded)) as inside:
        inside.beat_back()
        inside.catch_up()

        def is_told() -> bool:
            inside.checkpoint()
            return arrived(guarded["B"], CHECKPOINTS) > 0

        wait_until(is_told, "a checkpoint of billing")
    return load_config(file)


def test_a_drill_and_a_round_trip_need_what_the_guide_says(
    guarded: dict[str, LocalCluster], config: MirrorConfig
) -> None:
    target = guarded["B"]

    rehearsed = asyncio.run(drill(config, FLOW, DrillOptions()))
    left = asyncio.run(fail_over(config, FailoverOrder(flow=FLOW, mode="planned"), lambda _: None))
    grant(guarded["A"], FAILBACK)
    commit(target, "billing", "A.orders", 180)
    asyncio.run(fail_back(config, FailbackOrder(flow=FLOW), lambda _: None))

    assert rehearsed.reasons == ()
    assert rehearsed.notes == ("no driver mirrors the flow at this moment",)
    assert left.moved == ("billing",)
    assert left.skipped == ()
    assert committed(guarded["A"], "billing", "orders") == 180


# A consumer that may not read its group gets no answer from librdkafka but a time-out.
@pytest.mark.parametrize("missing", [*TOLD, DRILL[0], *DRILL[2:]], ids=str)
def test_a_drill_says_which_permission_is_missing(
    guarded: dict[str, LocalCluster], config: MirrorConfig, missing: Grant
) -> None:
    with without(guarded["B"], missing):
        try:
            report = asyncio.run(drill(config, FLOW, DrillOptions()))
            said = " ".join([*report.reasons, *report.notes])
        except BrokerError as exc:
            said = str(exc)

    assert f"missing permission {missing.operation} on {missing.kind} {missing.name}" in said


def test_a_failback_that_deletes_and_saves_needs_what_the_guide_says(
    guarded: dict[str, LocalCluster], tmp_path: Path
) -> None:
    old, new, back = guarded["A"], guarded["B"], FlowId(source=KEPT.target, target=KEPT.source)
    grant(old, [*AT_SOURCE, *at_target(back), *FAILBACK_KEPT_AT_C])
    grant(new, [*at_target(KEPT), *AT_SOURCE, *FAILBACK_KEPT_AT_D])
    lines = [
        "clusters = C, D",
        "topics = things",
        "groups = packing",
        "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "offsets = preserve",
        "emit.heartbeats.enabled = false",
        "heartbeats.replication.enabled = false",
        "emit.offset-syncs.enabled = false",
        "sync.topic.acls.enabled = false",
        "replication.factor = 1",
        "checkpoints.topic.replication.factor = 1",
    ]
    lines += role_lines({"C": old, "D": new})
    file = tmp_path / "mm2.properties"
    file.write_text("\n".join([*lines, "C->D.enabled = true", ""]), encoding="utf-8")
    create_topic(old, "things")
    produce(old, "things", numbered(100))
    commit(old, "packing", "things", 60)
    carry(file)
    asyncio.run(
        fail_over(load_config(file), FailoverOrder(flow=KEPT, mode="planned"), lambda _: None)
    )
    produce(old, "things", numbered(10))
    file.write_text("\n".join([*lines, "C->D.enabled = true", "D->C.enabled = true", ""]))
    order = FailbackOrder(
        flow=KEPT, choice=Choice.RESYNC, export_dir=tmp_path / "saved", may_delete=True
    )

    asyncio.run(fail_back(load_config(file), order, lambda _: None))

    assert arrived(new, SAVED) == 10
    # At the parting, though it stood at 60: what was before is only on the other side.
    assert committed(old, "packing", "things") == 100
