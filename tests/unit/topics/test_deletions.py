"""Deleting with the source: only on request, and never on a guess."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.broker.view import ClusterView
from heliograph.model import TopicId, TopicName
from heliograph.topics.deletions import BegunTopic, Deletions, GoneTopic, plan_deletions
from tests.unit.topics.views import SOURCE, TARGET, cluster, flow_with, topic

OURS, OTHERS = "0b9e2c1e-9a47-4c66-8d0e-3f1f4b8f7f11", "1b9e2c1e-9a47-4c66-8d0e-3f1f4b8f7f11"
GONE, STAYS = TopicName("gone"), TopicName("stays")
INTERVAL_S = 600.0
BEGUN = {
    GONE: BegunTopic(partitions=(0, 1), target_ids=frozenset({TopicId(OURS)})),
    STAYS: BegunTopic(partitions=(0,), target_ids=frozenset()),
}
DELETED = GoneTopic(source=GONE, target=TopicName("source.gone"), partitions=(0, 1))


def planned(
    *,
    on_topic_deleted: str = "delete",
    source: ClusterView | None = None,
    target_id: str | None = OURS,
    began_with: str = f"id-of-{SOURCE}",
    absent_s: float | None = INTERVAL_S,
    written_by_others: tuple[str, ...] = (),
    **fields: Any,
) -> Deletions:
    return plan_deletions(
        flow_with(on_topic_deleted=on_topic_deleted, **fields),
        source=source or cluster(SOURCE, topic("stays")),
        target=cluster(TARGET, topic("source.gone", topic_id=target_id), topic("source.stays")),
        began_with=began_with,
        begun=BEGUN,
        absent_s={} if absent_s is None else {GONE: absent_s},
        written_by_others=[TopicName(name) for name in written_by_others],
    )


def test_a_topic_that_has_been_gone_for_an_interval_is_deleted_with_its_lanes() -> None:
    assert planned() == Deletions(to_delete=(DELETED,))


def test_nothing_is_deleted_unless_somebody_asked_for_it() -> None:
    assert planned(on_topic_deleted="keep") == Deletions()
    assert flow_with().on_topic_deleted == "keep"


@pytest.mark.parametrize("absent_s", [0.0, INTERVAL_S - 0.001, None])
def test_a_topic_missed_at_one_look_only_is_left_alone(absent_s: float | None) -> None:
    assert planned(absent_s=absent_s) == Deletions()


@pytest.mark.parametrize("began_with", ["another", ""])
def test_an_alias_that_points_to_another_cluster_deletes_nothing(began_with: str) -> None:
    found = planned(began_with=began_with)

    assert found.to_delete == ()
    (why,) = found.refused
    assert why.startswith("no topic is deleted: the source is cluster id-of-source")


@pytest.mark.parametrize("left", [(), ("unrelated",)])
def test_a_source_that_lost_all_mirrored_topics_at_once_deletes_nothing(
    left: tuple[str, ...],
) -> None:
    found = planned(source=cluster(SOURCE, *(topic(name) for name in left)))

    assert found.to_delete == ()
    (why,) = found.refused
    assert "none of the mirrored topics is left on the source" in why


def test_a_topic_that_another_flow_writes_too_is_kept_and_said() -> None:
    found = planned(written_by_others=("source.gone",))

    assert found.to_delete == ()
    assert found.refused == ("source.gone is not deleted with its source: another flow writes it",)


def test_a_topic_that_was_created_again_on_the_target_is_kept_and_said() -> None:
    found = planned(target_id=OTHERS)

    assert found.to_delete == ()
    assert found.refused == (
        "source.gone is not deleted with its source: it is not the flow's topic",
    )


def test_a_topic_whose_copy_is_gone_already_has_its_lanes_forgotten() -> None:
    """A driver that died between deleting the topic and forgetting its lanes."""
    found = plan_deletions(
        flow_with(on_topic_deleted="delete"),
        source=cluster(SOURCE, topic("stays")),
        target=cluster(TARGET, topic("source.stays")),
        began_with=f"id-of-{SOURCE}",
        begun=BEGUN,
        absent_s={GONE: INTERVAL_S},
        written_by_others=(),
    )

    assert found == Deletions(to_delete=(DELETED,))


def test_a_topic_that_the_flow_does_not_mirror_any_more_is_left_alone() -> None:
    assert planned(topics_exclude=("gone",)) == Deletions()


def test_a_topic_that_came_back_is_left_alone() -> None:
    found = planned(source=cluster(SOURCE, topic("stays"), topic("gone")))

    assert found == Deletions()
