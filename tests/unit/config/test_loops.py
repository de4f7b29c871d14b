"""Where records go that keep their topics' names, for every shape that flows can have."""

from __future__ import annotations

import pytest

from heliograph.config.loops import loop_findings
from heliograph.config.schema import MirrorConfig
from heliograph.config.sections import IDENTITY_POLICY
from heliograph.model import ClusterAlias, FlowId, LoopPrevention
from tests.unit.config.texts import config_of


def config(flows: str, prevention: str = "", **others: str) -> MirrorConfig:
    """`AB BA` is A->B and B->A; `prevention` is of all, `others` of single flows."""
    aliases = sorted(set(flows.replace(" ", "")))
    lines = [
        f"clusters = {', '.join(aliases)}",
        *(f"{alias}.bootstrap.servers = {alias.lower()}:9092" for alias in aliases),
        f"replication.policy.class = {IDENTITY_POLICY}",
        *([f"loop.prevention = {prevention}"] if prevention else []),
        *(f"{flow(name)}.enabled = true" for name in flows.split()),
        *(f"{flow(name)}.loop.prevention = {how}" for name, how in others.items()),
    ]
    return config_of("\n".join(lines) + "\n")


def flow(name: str) -> FlowId:
    return FlowId(source=ClusterAlias(name[0]), target=ClusterAlias(name[1]))


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        pytest.param(config("AB BA"), [], id="both ways"),
        pytest.param(config("AB BA BC CB"), [], id="a chain both ways"),
        pytest.param(config("AB BC"), [], id="a chain"),
        pytest.param(config("AD BD CD"), [], id="many into one"),
        pytest.param(config("AB BA AC CA BC CB", "mirrored"), [], id="a full mesh"),
        pytest.param(config("AB BA", "none"), ["sent back"], id="both ways, nothing prevented"),
        pytest.param(config("AB BA", BA="none"), ["sent back"], id="one way unprevented"),
        pytest.param(config("AB BC CA"), ["go round without end"], id="a ring"),
        pytest.param(config("AB AC BC"), ["twice"], id="two ways to one cluster"),
        pytest.param(config("AB BC", BC="mirrored"), ["do not reach C"], id="a chain cut"),
    ],
)
def test_what_names_cannot_tell_is_found_in_the_flows(
    made: MirrorConfig, expected: list[str]
) -> None:
    found = [each.text for each in loop_findings(made)]

    assert len(found) == len(expected)
    assert all(part in text for part, text in zip(expected, found, strict=True))


def test_a_mesh_without_mirrored_goes_round() -> None:
    found = loop_findings(config("AB BA AC CA BC CB"))

    assert any(each.is_endless for each in found)


def test_unset_it_is_returning_where_both_directions_keep_names() -> None:
    both, one = config("AB BA"), config("AB")

    assert both.loop_prevention_of(flow("AB")) is LoopPrevention.RETURNING
    assert one.loop_prevention_of(flow("AB")) is LoopPrevention.NONE


def test_what_the_file_says_counts_for_each_flow() -> None:
    made = config("AB BA", "mirrored", BA="none")

    assert made.loop_prevention_of(flow("AB")) is LoopPrevention.MIRRORED
    assert made.loop_prevention_of(flow("BA")) is LoopPrevention.NONE


@pytest.mark.parametrize(("drop", "is_endless"), [("ours", False), ("theirs", True), ("", True)])
def test_a_ring_ends_where_each_flow_writes_the_header_that_the_others_drop_by(
    drop: str, is_endless: bool
) -> None:
    lines = [
        "clusters = A, B, C",
        *(f"{alias}.bootstrap.servers = {alias.lower()}:9092" for alias in "ABC"),
        *(f"{alias}.provenance.id = cluster-{alias}" for alias in "ABC"),
        f"replication.policy.class = {IDENTITY_POLICY}",
        "provenance.write = ours",
        *([f"provenance.drop = {drop}"] if drop else []),
        *(f"{flow(name)}.enabled = true" for name in ("AB", "BC", "CA")),
    ]

    found = loop_findings(config_of("\n".join(lines) + "\n"))

    assert any(each.is_endless for each in found) == is_endless
