"""What a plan prints: own topics with their keys, and what is said of many topics once."""

from __future__ import annotations

from heliograph.cli.plan import grouped
from heliograph.compat.own_topics import own_topics
from heliograph.config.schema import FlowConfig
from heliograph.model import ClusterAlias, FlowId, TopicName
from heliograph.topics.provisioning import PlanNote, Severity

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))


def note(topic: str, weight: Severity = Severity.NOTE) -> PlanNote:
    return PlanNote(topic=TopicName(topic), weight=weight, text="not copied: min.insync.replicas")


def test_a_note_on_many_topics_is_one_line_and_problems_are_one_each() -> None:
    notes = [*map(note, "abc"), *(note(topic, Severity.PROBLEM) for topic in "de")]

    assert [topics for _, _, topics in grouped(notes)] == [["a", "b", "c"], ["d"], ["e"]]


def test_the_topics_heliograph_makes_for_itself_are_known_with_the_keys_of_their_factors() -> None:
    made = own_topics(FlowConfig(id=FLOW, enabled=True))

    assert {(topic.cluster, topic.name, topic.factor_key) for topic in made} == {
        ("B", "heliograph-ledger.A.internal", "replication.factor"),
        ("B", "heartbeats", "heartbeats.topic.replication.factor"),
        ("A", "mm2-offset-syncs.B.internal", "offset-syncs.topic.replication.factor"),
        ("B", "A.checkpoints.internal", "checkpoints.topic.replication.factor"),
    }


def test_a_pair_that_mirrors_nothing_makes_heartbeats_alone() -> None:
    made = own_topics(FlowConfig(id=FLOW, enabled=False))

    assert [topic.what for topic in made] == ["heartbeats"]
