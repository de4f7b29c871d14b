"""What is created, grown and remarked upon before records flow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heliograph.broker.topic_changes import PartitionsToGrow, TopicToCreate
from heliograph.broker.view import ClusterView, ConfigOrigin, TopicView
from heliograph.config.schema import FlowConfig
from heliograph.config.sections import CONFIG_PROPERTIES_EXCLUDE
from heliograph.model import OnExisting, TopicName
from heliograph.topics.filters import config_filter
from heliograph.topics.provisioning import (
    PlanNote,
    Provisioning,
    Severity,
    configs_to_copy,
    plan_provisioning,
)
from heliograph.topics.selection import select_topics
from tests.unit.topics.views import SOURCE, TARGET, cluster, flow_with, setting, topic


def provisioning(
    flow: FlowConfig,
    source: ClusterView,
    target: ClusterView,
    foreign_records: dict[TopicName, int] | None = None,
) -> Provisioning:
    return plan_provisioning(
        flow, select_topics(flow, source.topics), source, target, foreign_records
    )


def notes_on(
    source: TopicView, target: ClusterView, *, replication_factor: int = 2
) -> tuple[PlanNote, ...]:
    return provisioning(
        flow_with(replication_factor=replication_factor), cluster(SOURCE, source), target
    ).notes


def test_a_missing_topic_is_created_with_the_partitions_and_settings_of_the_source() -> None:
    source = cluster(SOURCE, topic("orders", 4, setting("cleanup.policy", "compact")))

    plan = provisioning(flow_with(replication_factor=3), source, cluster(TARGET))

    assert plan.to_create == (
        TopicToCreate(
            source=TopicName("orders"),
            name=TopicName("source.orders"),
            partitions=4,
            replication_factor=3,
            configs={"cleanup.policy": "compact"},
        ),
    )
    assert plan.to_grow == ()
    assert plan.notes == ()


def test_a_topic_with_fewer_partitions_is_grown() -> None:
    source, target = cluster(SOURCE, topic("orders", 4)), cluster(TARGET, topic("source.orders", 3))

    plan = provisioning(flow_with(), source, target)

    growth = PartitionsToGrow(name=TopicName("source.orders"), partitions_before=3, partitions=4)
    assert plan.to_grow == (growth,)
    assert plan.to_create == ()


def test_a_topic_with_more_partitions_is_left_alone_and_said() -> None:
    source, target = cluster(SOURCE, topic("orders", 2)), cluster(TARGET, topic("source.orders", 5))

    plan = provisioning(flow_with(), source, target)

    assert (plan.to_create, plan.to_grow) == ((), ())
    (note,) = plan.notes
    assert note.text == "has 5 partitions, the source 2: the others stay empty"
    assert note.weight is Severity.NOTE


def test_settings_that_are_excluded_are_never_copied() -> None:
    """MirrorSourceConnectorTest.testConfigPropertyFiltering and testNewTopicConfigs."""
    found = topic(
        "orders",
        1,
        setting("name-1", "value-1"),
        setting("exclude_param.param1", "value-param1"),
        setting("min.insync.replicas", "2"),
    )
    exclude = (*CONFIG_PROPERTIES_EXCLUDE, "exclude_param.*")

    copied = config_filter(flow_with(config_properties_exclude=exclude))

    assert configs_to_copy(found, copied) == {"name-1": "value-1"}


@pytest.mark.parametrize("origin", list(ConfigOrigin))
def test_only_defaults_and_static_broker_settings_stay_behind(origin: ConfigOrigin) -> None:
    found = topic("orders", 1, setting("retention.ms", "1000", origin))

    copied = "retention.ms" in configs_to_copy(found, config_filter(flow_with()))

    assert copied is (origin not in (ConfigOrigin.DEFAULT, ConfigOrigin.STATIC_BROKER))


def test_read_only_and_sensitive_settings_are_not_copied() -> None:
    found = topic(
        "orders",
        1,
        setting("a", "1", read_only=True),
        setting("b", None, sensitive=True),
        setting("c", "3"),
    )

    assert configs_to_copy(found, config_filter(flow_with())) == {"c": "3"}


def test_what_is_left_out_by_configuration_is_said() -> None:
    source = topic("orders", 1, setting("min.insync.replicas", "2"))

    (note,) = notes_on(source, cluster(TARGET))

    assert note.text == "not copied (config.properties.exclude): min.insync.replicas"


def test_more_replicas_than_brokers_is_a_problem_and_the_factor_stays_as_given() -> None:
    source = cluster(SOURCE, topic("orders"))

    plan = provisioning(flow_with(replication_factor=3), source, cluster(TARGET, broker_count=1))

    assert plan.to_create[0].replication_factor == 3
    (note,) = plan.notes
    assert note.weight is Severity.PROBLEM
    assert note.text == "replication.factor is 3, cluster target has 1 broker up"


def test_the_brokers_default_replication_factor_is_never_too_large() -> None:
    assert notes_on(topic("orders"), cluster(TARGET, broker_count=1), replication_factor=-1) == ()


def test_topics_that_would_share_a_name_are_problems_and_none_is_created() -> None:
    flow = flow_with("tests.unit.topics.own_classes:Lowering")
    source = cluster(SOURCE, topic("Orders"), topic("orders"))

    plan = provisioning(flow, source, cluster(TARGET))

    assert plan.to_create == ()
    assert [(note.topic, note.weight) for note in plan.notes] == [
        ("Orders", Severity.PROBLEM),
        ("orders", Severity.PROBLEM),
    ]
    assert plan.notes[0].text == (
        "not mirrored: would be `source.orders` on the target, and so would orders"
    )


def test_a_name_that_becomes_too_long_is_a_problem() -> None:
    (note,) = notes_on(topic("x" * 249), cluster(TARGET))

    assert note.weight is Severity.PROBLEM
    assert note.text == "name has 256 characters, Kafka allows 249"


def test_append_time_on_the_target_is_a_problem_since_timestamps_are_lost() -> None:
    source = topic("orders", 1, setting("message.timestamp.type", "CreateTime"))
    stamped = setting("message.timestamp.type", "LogAppendTime")
    by_default = cluster(TARGET, topic_defaults={"message.timestamp.type": "LogAppendTime"})
    present = cluster(TARGET, topic("source.orders", 1, stamped))

    for target in (by_default, present):
        problems = [n for n in notes_on(source, target) if n.weight is Severity.PROBLEM]

        assert [problem.text for problem in problems] == [
            "message.timestamp.type is LogAppendTime on the target: "
            "timestamps of the source are not kept"
        ]


def test_a_codec_set_on_the_target_is_said_since_brokers_recompress() -> None:
    copied = topic("orders", 1, setting("compression.type", "zstd"))
    (note,) = notes_on(copied, cluster(TARGET))

    assert note.weight is Severity.NOTE
    assert note.text.startswith("compression.type is zstd on the target")
    by_producer = {"compression.type": "producer"}
    assert notes_on(topic("orders"), cluster(TARGET, topic_defaults=by_producer)) == ()


def test_a_smaller_message_limit_on_the_target_is_a_problem() -> None:
    static = setting("max.message.bytes", "5000000", ConfigOrigin.STATIC_BROKER)
    target = cluster(TARGET, topic_defaults={"max.message.bytes": "1048588"})

    (note,) = notes_on(topic("orders", 1, static), target)

    assert note.weight is Severity.PROBLEM
    assert "1048588 on the target and 5000000 on the source" in note.text


def test_a_message_limit_that_is_copied_is_no_problem() -> None:
    own = setting("max.message.bytes", "5000000")
    target = cluster(TARGET, topic_defaults={"max.message.bytes": "1048588"})

    assert notes_on(topic("orders", 1, own), target) == ()


@pytest.mark.parametrize(
    ("on_existing", "weight"),
    [(OnExisting.APPEND, Severity.NOTE), (OnExisting.REFUSE, Severity.PROBLEM)],
)
def test_other_records_on_the_target_are_said_with_what_happens_to_the_copy(
    on_existing: OnExisting, weight: Severity
) -> None:
    source, target = cluster(SOURCE, topic("orders")), cluster(TARGET, topic("source.orders"))
    foreign = {TopicName("source.orders"): 7}

    plan = provisioning(flow_with(on_existing=on_existing), source, target, foreign)

    (note,) = plan.notes
    assert note.weight is weight
    assert note.text.startswith("already holds 7 other records")


def test_a_topic_whose_settings_are_not_shown_is_not_created() -> None:
    sentence = "cluster source: missing permission DESCRIBE_CONFIGS on topic orders"
    hidden = replace(topic("orders"), settings=None, settings_refused=sentence)

    plan = provisioning(flow_with(), cluster(SOURCE, hidden), cluster(TARGET))

    assert plan.to_create == ()
    (note,) = plan.notes
    assert note == PlanNote(
        topic=TopicName("source.orders"), weight=Severity.PROBLEM, text=f"not created: {sentence}"
    )


def test_topics_that_are_not_mirrored_are_not_prepared() -> None:
    source = cluster(SOURCE, topic("orders"), topic("target.back"), topic("__consumer_offsets"))

    plan = provisioning(flow_with(topics=(".*",)), source, cluster(TARGET))

    assert [creation.name for creation in plan.to_create] == ["source.orders"]
