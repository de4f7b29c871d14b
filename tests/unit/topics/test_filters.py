"""What a flow follows: MirrorMaker 2's lists, or a Python class of the operator's own."""

from __future__ import annotations

import pytest

from heliograph.config.sections import GroupsConfig, TopicConfigsSync
from heliograph.errors import ConfigError, PluginFailed
from heliograph.topics.filters import config_filter, group_filter, topic_filter
from tests.unit.topics.views import flow_with

OWN = "tests.unit.topics.own_classes:"


def test_by_default_a_topic_must_match_in_full_and_an_exclusion_wins() -> None:
    names = topic_filter(flow_with(topics=("orders", "pay.*"), topics_exclude=("payroll",)))

    asked = ["orders", "orders2", "payments", "payroll", "other"]

    assert [names.should_mirror(name) for name in asked] == [True, False, True, False, False]


def test_by_default_groups_of_consoles_and_connect_are_not_followed() -> None:
    """MirrorCheckpointConfigTest.testGroupMatching, with MirrorMaker 2's own exclusions."""
    names = group_filter(flow_with())

    asked = ["billing", "console-consumer-1", "connect-x", "__internal", "not-connect-x"]

    assert [names.should_follow(group) for group in asked] == [True, False, False, False, True]


def test_groups_asked_for_by_name_are_the_only_ones_followed() -> None:
    names = group_filter(flow_with(groups=GroupsConfig(include=("g1", "g2"), exclude=("g2",))))

    assert [names.should_follow(group) for group in ("g1", "g2", "g3")] == [True, False, False]


def test_by_default_every_configuration_is_copied_but_the_excluded() -> None:
    names = config_filter(flow_with(config_properties_exclude=("delete\\.retention\\..*",)))

    assert names.should_copy("cleanup.policy")
    assert not names.should_copy("delete.retention.ms")
    assert names.should_copy("delete_retention_ms")


@pytest.mark.parametrize("name", ["before.max.ms", "after.max.ms", "difference.max.ms", "type"])
def test_by_default_nothing_is_copied_that_makes_a_target_refuse_old_records(name: str) -> None:
    assert not config_filter(flow_with()).should_copy(f"message.timestamp.{name}")


def test_a_filter_of_ones_own_is_given_the_flow_and_replaces_the_lists() -> None:
    flow = flow_with(
        topics=("-eu",),
        topic_filter_class=OWN + "EndsIn",
        groups=GroupsConfig(filter_class=OWN + "EndsIn"),
        topic_configs=TopicConfigsSync(filter_class=OWN + "EndsIn"),
    )

    assert topic_filter(flow).should_mirror("orders-eu")
    assert not topic_filter(flow).should_mirror("-eu-orders")
    assert group_filter(flow).should_follow("connect-eu")
    assert config_filter(flow).should_copy("min.insync.replicas-eu")


def test_what_a_filter_of_ones_own_raises_is_told_with_its_name() -> None:
    flow = flow_with(
        groups=GroupsConfig(filter_class=OWN + "Raising"),
        topic_configs=TopicConfigsSync(filter_class=OWN + "Raising"),
    )

    with pytest.raises(PluginFailed) as raised:
        group_filter(flow).should_follow("g1")
    with pytest.raises(PluginFailed) as answered:
        config_filter(flow).should_copy("x")

    assert str(raised.value) == (
        f"`{OWN}Raising`: should_follow('g1') raised RuntimeError: cannot say"
    )
    assert str(answered.value) == f"`{OWN}Raising`: should_copy('x') gave a int, not a bool"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (OWN + "Unmakeable", "which cannot be constructed with a FlowConfig: ValueError: "),
        (OWN + "HalfAPolicy", "a class without `should_mirror`"),
        (OWN + "Nobody", "but `tests.unit.topics.own_classes` has no `Nobody`"),
        (OWN + "NOT_A_CLASS", "not a class"),
        ("no.such.module:X", "whose module cannot be imported: ModuleNotFoundError: "),
        ("com.acme.TopicFilter", "a Java class that cannot run here; write `module:Class`"),
    ],
)
def test_a_filter_that_cannot_be_used_is_a_problem_of_its_key(path: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        topic_filter(flow_with(topic_filter_class=path))

    (problem,) = caught.value.problems
    assert problem.startswith(f"topic.filter.class: is `{path}`, {why}")
