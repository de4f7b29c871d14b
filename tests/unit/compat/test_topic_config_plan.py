"""Settings followed after creation: only differences are written, with MirrorMaker 2's outcome."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from heliograph.broker.topic_changes import ConfigChange
from heliograph.broker.view import ClusterView, ConfigOrigin, TopicSetting, TopicView
from heliograph.compat.topic_config_plan import TopicConfigPlan, plan_topic_configs
from heliograph.config.sections import TopicConfigsSync
from heliograph.model import TopicName
from heliograph.topics.provisioning import Severity
from heliograph.topics.selection import select_topics
from tests.unit.topics.views import SOURCE, TARGET, cluster, flow_with, setting, topic

RENAMED = TopicName("source.orders")
DEFAULT, STATIC = ConfigOrigin.DEFAULT, ConfigOrigin.STATIC_BROKER


def plan_of(source: ClusterView, target: ClusterView, **fields: Any) -> TopicConfigPlan:
    flow = flow_with(**fields)
    return plan_topic_configs(flow, select_topics(flow, source.topics), source, target)


def changes(
    read: TopicSetting | list[TopicSetting],
    written: TopicSetting | list[TopicSetting],
    **fields: Any,
) -> dict[str, str | None]:
    """What would be changed on the target, by name; None where its own setting is taken away."""
    source = read if isinstance(read, list) else [read]
    target = written if isinstance(written, list) else [written]
    plan = plan_of(
        cluster(SOURCE, topic("orders", 1, *source)),
        cluster(TARGET, topic(RENAMED, 1, *target)),
        **fields,
    )
    return {change.name: change.value for each in plan.topics for change in each.changes}


def defaults_from(side: str) -> dict[str, Any]:
    return {"topic_configs": TopicConfigsSync.model_validate({"use_defaults_from": side})}


def test_a_setting_of_the_source_topic_replaces_another_value_on_the_target() -> None:
    read, written = setting("retention.ms", "1000"), setting("retention.ms", "2000")

    plan = plan_of(
        cluster(SOURCE, topic("orders", 1, read)), cluster(TARGET, topic(RENAMED, 1, written))
    )

    (only,) = plan.topics
    assert only.topic == RENAMED
    assert only.changes == (ConfigChange(name="retention.ms", value="1000", before="2000"),)


def test_what_is_equal_on_both_sides_is_not_written_again() -> None:
    same = setting("retention.ms", "1000")

    assert changes(same, same) == {}


def test_an_equal_value_that_the_target_merely_inherits_is_pinned() -> None:
    inherited = setting("retention.ms", "1000", DEFAULT)

    assert changes(setting("retention.ms", "1000"), inherited) == {"retention.ms": "1000"}


def test_a_target_override_of_a_source_default_is_taken_back() -> None:
    """Target defaults: MirrorConnectorsIntegrationBaseTest.testReplicateTargetDefault."""
    default, override = setting("delete.retention.ms", "86400000", DEFAULT), "2000"

    found = changes(default, setting("delete.retention.ms", override), **defaults_from("target"))

    assert found == {"delete.retention.ms": None}


def test_a_source_default_is_written_where_defaults_come_from_the_source() -> None:
    """Source defaults: MirrorConnectorsIntegrationBaseTest.testReplicateSourceDefault."""
    default, override = setting("delete.retention.ms", "86400000", DEFAULT), "2000"

    found = changes(default, setting("delete.retention.ms", override), **defaults_from("source"))

    assert found == {"delete.retention.ms": "86400000"}


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_default_on_both_sides_costs_nothing_unless_the_source_rules(side: str) -> None:
    read, written = setting("flush.ms", "1", DEFAULT), setting("flush.ms", "2", DEFAULT)

    found = changes(read, written, **defaults_from(side))

    assert found == ({"flush.ms": "1"} if side == "source" else {})


def test_excluded_settings_of_the_target_are_kept_whatever_the_source_has() -> None:
    """MirrorConnectorsIntegrationBaseTest.testSyncTopicConfigs, the excluded half."""
    read = [setting("min.insync.replicas", "2"), setting("segment.bytes", "7")]
    written = [setting("min.insync.replicas", "1"), setting("segment.bytes", "8")]

    found = changes(read, written, config_properties_exclude=("min.*",))

    assert found == {"segment.bytes": "7"}


def test_dynamic_broker_settings_of_the_source_become_topic_settings() -> None:
    """As in MirrorMaker 2, which takes all but DEFAULT_CONFIG for the topic's own."""
    read = setting("retention.ms", "5", ConfigOrigin.BROKER_DEFAULT)

    found = changes(read, setting("retention.ms", "9", DEFAULT))

    assert found == {"retention.ms": "5"}


@pytest.mark.parametrize(
    "read",
    [
        setting("a", "1", STATIC),
        setting("a", "1", read_only=True),
        setting("a", None, sensitive=True),
        setting("a", None),
    ],
    ids=["static broker", "read only", "sensitive", "no value"],
)
def test_what_is_not_the_topics_to_say_is_never_written(read: TopicSetting) -> None:
    assert changes(read, setting("a", "2")) == {}


def test_a_setting_the_target_does_not_know_is_said_and_stops_no_other() -> None:
    """A broker refuses all changes of a topic for one unknown name."""
    read = [setting("remote.copy.disable", "true"), setting("retention.ms", "1")]
    source = cluster(SOURCE, topic("orders", 1, *read))
    target = cluster(TARGET, topic(RENAMED, 1, setting("retention.ms", "2")))

    plan = plan_of(source, target)

    assert [change.name for change in plan.topics[0].changes] == ["retention.ms"]
    (note,) = plan.notes
    assert note.weight is Severity.NOTE
    assert note.text == "the target has no such setting: remote.copy.disable"


@pytest.mark.parametrize("refused", ["source", "target"])
def test_settings_that_are_not_shown_are_a_problem_and_are_left_alone(refused: str) -> None:
    hidden: dict[str, Any] = {"settings": None, "settings_refused": "missing permission X"}
    read: TopicView = topic("orders", 1, setting("retention.ms", "1"))
    written: TopicView = topic(RENAMED, 1, setting("retention.ms", "2"))
    if refused == "source":
        read = replace(read, **hidden)
    else:
        written = replace(written, **hidden)

    plan = plan_of(cluster(SOURCE, read), cluster(TARGET, written))

    assert plan.topics == ()
    (note,) = plan.notes
    assert note.weight is Severity.PROBLEM
    assert note.text == "settings are not followed: missing permission X"


def test_topics_that_only_one_side_has_are_left_to_creation() -> None:
    source = cluster(SOURCE, topic("orders", 1, setting("a", "1")))
    target = cluster(TARGET, topic("source.gone", 1, setting("a", "2")))

    plan = plan_of(source, target)

    assert (plan.topics, plan.notes) == ((), ())
