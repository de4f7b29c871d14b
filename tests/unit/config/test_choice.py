"""Which flows a process looks after when it was told to leave some to others."""

from __future__ import annotations

import pytest

from heliograph.config.choice import choose
from heliograph.errors import ConfigError
from tests.unit.config.texts import around, parse_config

TEXT = """\
clusters = A, B, C
A.bootstrap.servers = a:1
B.bootstrap.servers = b:1
C.bootstrap.servers = c:1
A->B.enabled = true
B->A.enabled = true
A->C.enabled = true
"""
CONFIG = parse_config(TEXT, source="x.properties", around=around())


def test_clusters_are_targets_and_keep_their_heartbeats_as_in_mirrormaker_2() -> None:
    made = choose(CONFIG, clusters=["B", "C"])

    assert [str(flow.id) for flow in made.flows] == ["A->B", "A->C"]
    assert {pair.id.target for pair in made.chosen_pairs} == {"B", "C"}
    assert len(made.chosen_pairs) == 4


def test_a_named_flow_takes_along_a_way_back_that_only_has_heartbeats() -> None:
    one, other = choose(CONFIG, flows=["A->C"]), choose(CONFIG, flows=["A -> B"])

    assert [str(pair.id) for pair in one.chosen_pairs] == ["A->C", "C->A"]
    assert [str(pair.id) for pair in other.chosen_pairs] == ["A->B"]


def test_with_both_a_flow_must_satisfy_both() -> None:
    made = choose(CONFIG, clusters=["B", "C"], flows=["A->C", "B->A"])

    assert [str(flow.id) for flow in made.flows] == ["A->C"]


def test_flows_of_others_are_still_known() -> None:
    made = choose(CONFIG, flows=["A->B"])

    assert [str(flow.id) for flow in made.every_flow] == ["A->B", "A->C", "B->A"]
    assert made.source_of(CONFIG.flows[1].id).alias == "A"


def test_without_a_choice_all_is_as_it_was() -> None:
    assert choose(CONFIG) is CONFIG


@pytest.mark.parametrize(
    ("clusters", "flows", "said"),
    [
        (["B", "X"], [], "--clusters: 1 problem\n  'X' is not a cluster of the file: A, B, C"),
        ([], ["B->C"], "'B->C' is not an enabled flow of the file: A->B, A->C, B->A"),
        (["C"], ["A->B"], "no enabled flow has a target among C and the name A->B"),
    ],
)
def test_what_the_file_does_not_have_is_one_sentence(
    clusters: list[str], flows: list[str], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        choose(CONFIG, clusters=clusters, flows=flows)

    assert said in str(refused.value)
