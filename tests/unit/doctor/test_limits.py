"""Sizes and timestamps that the target's brokers bound for all."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.doctor.facts import TopicFacts
from heliograph.doctor.finding import Severity
from heliograph.doctor.limits import limit_findings, plan_findings
from heliograph.inspect.dry_run import FlowPlan
from heliograph.model import ClusterAlias, FlowId, TopicName
from heliograph.topics.provisioning import PlanNote
from heliograph.topics.provisioning import Severity as Weight
from tests.unit.doctor.clusters import broker, by_severity, cluster, severities, topic

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
HOUR, WEEK = "3600000", "604800000"
NO_BOUND = str(2**63 - 1)


def found(source: TopicFacts, copy: TopicFacts | None = None, **settings: str) -> Any:
    own = {key.replace("_", "."): value for key, value in settings.items()}
    target = cluster(broker(0, settings=own), *([copy] if copy else []), alias="B")
    pair = (source.name, TopicName(f"A.{source.name}"))
    return by_severity(limit_findings(FLOW, cluster(broker(0), source), target, [pair]))


def orders(**settings: Any) -> TopicFacts:
    return topic("orders", (0,), **({"cleanup_policy": "delete"} | settings))


def copy(**settings: Any) -> TopicFacts:
    return topic("A.orders", (0,), **settings)


def test_a_batch_that_no_request_may_carry_is_a_problem() -> None:
    seen = found(orders(max_message_bytes="104857600"), socket_request_max_bytes="104857600")

    (said,) = seen[Severity.PROBLEM]
    assert said.startswith("socket.request.max.bytes of cluster B is 104,857,600, and max.message")


@pytest.mark.parametrize(
    ("source", "target", "broker_setting", "is_refused"),
    [
        (orders(retention_ms=WEEK), copy(message_timestamp_before_max_ms=HOUR), "", True),
        (orders(retention_ms=WEEK), copy(message_timestamp_before_max_ms=WEEK), "", False),
        (orders(retention_ms="-1"), copy(message_timestamp_before_max_ms=WEEK), "", True),
        (orders(retention_ms="-1"), copy(message_timestamp_before_max_ms=NO_BOUND), "", False),
        (orders(cleanup_policy="compact"), copy(message_timestamp_before_max_ms=WEEK), "", True),
        # A topic that is still to be made gets the brokers' default.
        (orders(retention_ms=WEEK), None, HOUR, True),
        (orders(retention_ms=WEEK), None, NO_BOUND, False),
    ],
)
def test_records_older_than_the_target_takes_are_a_problem(
    source: TopicFacts, target: TopicFacts | None, broker_setting: str, is_refused: bool
) -> None:
    settings = {"log_message_timestamp_before_max_ms": broker_setting} if broker_setting else {}

    seen = found(source, target, **settings)

    assert (Severity.PROBLEM in seen) is is_refused


def test_a_source_that_takes_records_from_further_ahead_is_warned_of() -> None:
    source = orders(retention_ms=HOUR, message_timestamp_after_max_ms=WEEK)

    seen = found(source, copy(message_timestamp_after_max_ms=HOUR))

    assert "further in the future" in seen[Severity.WARN][0]


def test_log_append_time_on_the_source_costs_cpu() -> None:
    seen = found(orders(message_timestamp_type="LogAppendTime"))

    assert seen[Severity.NOTE] == ["1 topic with LogAppendTime on the source (orders)"]


def test_sizes_that_fit_are_told() -> None:
    source = cluster(broker(0), orders(max_message_bytes="1048588"))
    pair = (TopicName("orders"), TopicName("A.orders"))

    (fine,) = limit_findings(FLOW, source, cluster(broker(0), alias="B"), [pair])

    assert fine.severity is Severity.OK
    assert fine.what.endswith("the largest batch allowed is 1,048,588 bytes")


def test_what_a_plan_says_of_many_topics_is_one_finding() -> None:
    notes = tuple(
        PlanNote(topic=TopicName(f"A.{n}"), weight=Weight.PROBLEM, text="too long") for n in "abcd"
    )

    (seen,) = plan_findings(FlowPlan(flow=FLOW, notes=notes))

    assert (seen.severity, seen.what) == (
        Severity.PROBLEM,
        "A.a, A.b, A.c and 1 more: too long",
    )


def test_a_plan_without_notes_is_fine_and_one_that_failed_says_nothing() -> None:
    assert severities(plan_findings(FlowPlan(flow=FLOW))) == [Severity.OK]
    assert plan_findings(FlowPlan(flow=FLOW, problem="unreachable")) == []
