"""What each job needs, as the page about permissions has it, and what is missing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from heliograph.config.schema import ClusterConfig, FlowConfig, MirrorConfig
from heliograph.config.sections import (
    CheckpointsConfig,
    GroupsConfig,
    HeartbeatsConfig,
    OffsetSyncsConfig,
    TopicAclsSync,
)
from heliograph.doctor.facts import Untold
from heliograph.doctor.finding import Severity
from heliograph.doctor.permissions import (
    OPERATION_BITS,
    Allowed,
    Need,
    needs_of,
    permission_findings,
)
from heliograph.model import ClusterAlias, FlowId, Offsets, TopicName

A, B = ClusterAlias("A"), ClusterAlias("B")
GUIDE = (Path(__file__).parents[3] / "docs/guides/permissions.md").read_text()
ROW = re.compile(
    r"^\| (\w+) \| ([A-Z_]+) \| (topics?|group|cluster)(?: `([^`]+)`)? \|", re.MULTILINE
)
MIRRORED = {
    TopicName("orders"): TopicName("A.orders"),
    TopicName("heartbeats"): TopicName("A.heartbeats"),
}


def config(**fields: Any) -> tuple[MirrorConfig, FlowConfig]:
    groups = fields.pop("groups", GroupsConfig(sync_offsets_enabled=True))
    flow = FlowConfig(id=FlowId(source=A, target=B), enabled=True, groups=groups, **fields)
    heartbeats = fields.get("heartbeats", HeartbeatsConfig())
    back = FlowConfig(id=FlowId(source=B, target=A), heartbeats=heartbeats)
    clusters = {a: ClusterConfig(alias=a, bootstrap_servers=("x:1",)) for a in (A, B)}
    return MirrorConfig(clusters=clusters, pairs=(flow, back)), flow


def rows(section: str) -> set[tuple[str, str, str, str]]:
    text = GUIDE.partition(f"## {section}\n")[2].partition("\n## ")[0]
    return {(role, op, kind.rstrip("s"), name) for role, op, kind, name in ROW.findall(text)}


def as_on_the_page(need: Need) -> tuple[str, str, str, str]:
    """`A.*` on the page stands for every copy, the checkpoints among them."""
    is_copy = need.cluster == B and need.role == "admin" and need.name.startswith("A.")
    return need.role, need.operation, need.kind, "A.*" if is_copy else need.name


@pytest.mark.parametrize(("section", "alias"), [("On the source", A), ("On the target", B)])
def test_the_needs_of_a_flow_are_those_of_the_page(section: str, alias: ClusterAlias) -> None:
    needs = needs_of(*config(), MIRRORED, ["billing"])

    assert {as_on_the_page(n) for n in needs if n.cluster == alias} == rows(section)


@pytest.mark.parametrize(
    ("fields", "gone"),
    [
        ({"checkpoints": CheckpointsConfig(enabled=False)}, "A.checkpoints.internal"),
        ({"offset_syncs": OffsetSyncsConfig(enabled=False)}, "mm2-offset-syncs.B.internal"),
    ],
)
def test_a_job_that_is_off_needs_nothing(fields: dict[str, Any], gone: str) -> None:
    assert gone in {need.name for need in needs_of(*config(), MIRRORED, ["billing"])}
    assert gone not in {need.name for need in needs_of(*config(**fields), MIRRORED, ["billing"])}


def test_acls_need_the_cluster_and_preserved_offsets_need_delete() -> None:
    off = needs_of(*config(acls=TopicAclsSync(enabled=False)), MIRRORED, [])
    preserved = needs_of(*config(offsets=Offsets.PRESERVE), MIRRORED, [])

    assert not [need for need in off if need.kind == "cluster"]
    assert ("producer", "DELETE") in {(need.role, need.operation) for need in preserved}


def need(operation: Any, name: str = "t", kind: Any = "topic") -> Need:
    return Need(
        cluster=A, role="admin", operation=operation, kind=kind, name=name, what_for="a job"
    )


def test_what_is_missing_is_told_by_operation() -> None:
    bits = OPERATION_BITS["READ"] | OPERATION_BITS["DESCRIBE"]
    allowed = Allowed(bits={("topic", name): bits for name in ("t", "u")})
    needs = [need("READ"), need("ALTER"), need("ALTER", "u")]

    (found,) = permission_findings(needs, {(A, "admin"): allowed})

    assert found.severity is Severity.PROBLEM
    assert found.what == "its admin lacks ALTER on topic t, topic u"
    assert found.why == "needed for: a job"


@pytest.mark.parametrize(
    ("creatable", "severity"),
    [({"t": True}, Severity.OK), ({"t": False}, Severity.PROBLEM), ({}, Severity.UNKNOWN)],
)
def test_a_topic_that_is_not_there_may_be_created_or_not(
    creatable: dict[str, bool], severity: Severity
) -> None:
    allowed = Allowed(bits={("topic", "t"): Untold(why="not there")}, creatable=creatable)

    (found,) = permission_findings([need("CREATE")], {(A, "admin"): allowed})

    assert found.severity is severity


def test_a_topic_that_is_there_need_not_be_created() -> None:
    allowed = Allowed(bits={("topic", "t"): OPERATION_BITS["READ"]})

    (found,) = permission_findings([need("CREATE")], {(A, "admin"): allowed})

    assert found.severity is Severity.OK


def test_a_client_that_cannot_connect_leaves_its_permissions_unknown() -> None:
    told = Untold(why="cluster A: credentials refused")

    (found,) = permission_findings([need("READ"), need("ALTER")], {(A, "admin"): told})

    assert found.severity is Severity.UNKNOWN
    assert found.what == (
        "2 permissions (READ on topic t, ALTER on topic t): cluster A: credentials refused"
    )
