from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from heliograph.broker.clients import Clients
from heliograph.broker.group_view import CommitOutcome, GroupOffset
from heliograph.config.schema import FlowConfig
from heliograph.errors import BrokerError, NotAuthorised
from heliograph.groups import lag_group
from heliograph.groups.lag_group import LagGroupJob
from heliograph.model import LaneProgress, TopicPartition
from heliograph.topics.filters import group_filter
from tests.unit.api.pretend import AB, at
from tests.unit.config.texts import problems_with

FLOW = FlowConfig(id=AB, enabled=True, lag_group="lag.{source}.{target}")


class Source:
    """A cluster that takes commits of all but some partitions."""

    def __init__(self) -> None:
        self.commits: list[tuple[str, dict[int, int]]] = []
        self.refused: set[int] = set()

    def source(self, flow: object) -> None: ...

    def groups(self, cluster: object) -> Source:
        return self

    def commit(self, group: str, offsets: Mapping[TopicPartition, GroupOffset]) -> CommitOutcome:
        self.commits.append(
            (group, {each.partition: stood.offset for each, stood in offsets.items()})
        )
        problems: dict[TopicPartition, BrokerError] = {
            each: NotAuthorised("no READ") for each in offsets if each.partition in self.refused
        }
        return CommitOutcome(written=frozenset(offsets) - problems.keys(), problems=problems)


def job(source: Source, *lanes: LaneProgress) -> tuple[LagGroupJob, dict[Any, LaneProgress]]:
    progress = {each.lane: each for each in lanes}
    return LagGroupJob(FLOW, cast(Clients, source), lambda: progress), progress


def test_only_what_has_changed_is_committed() -> None:
    source = Source()
    made, progress = job(source, at(0), at(1, lag=3))

    made.step()
    made.step()
    progress[at(1).lane] = replace(at(1), source_next_offset=13)
    made.step()

    assert source.commits == [("lag.A.B", {0: 10, 1: 10}), ("lag.A.B", {1: 13})]


def test_everything_is_committed_again_before_a_broker_forgets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, now_s = Source(), 0.0
    monkeypatch.setattr(lag_group, "monotonic_s", lambda: now_s)
    made, _ = job(source, at(0))

    made.step()
    now_s = 3_599.0
    made.step()
    now_s = 3_600.0
    made.step()

    assert source.commits == [("lag.A.B", {0: 10}), ("lag.A.B", {0: 10})]


def test_what_was_settled_by_a_drain_is_committed_without_another_question() -> None:
    source = Source()
    made, progress = job(source, at(0))
    made.step()
    moved = {at(0).lane: replace(at(0), source_next_offset=12)}
    progress.clear()

    made.drained(moved)

    assert source.commits == [("lag.A.B", {0: 10}), ("lag.A.B", {0: 12})]


def test_a_lane_that_has_not_found_its_place_is_not_committed() -> None:
    source = Source()
    made, _ = job(source, replace(at(0), target_next_offset=-1))

    made.step()

    assert source.commits == []


def test_what_was_refused_is_said_and_tried_again() -> None:
    source = Source()
    source.refused = {1}
    made, _ = job(source, at(0), at(1))

    for _ in range(2):
        with pytest.raises(BrokerError, match="does not show how far"):
            made.step()

    assert source.commits[1] == ("lag.A.B", {1: 10})


def test_lag_groups_are_not_mirrored_as_groups() -> None:
    follows = group_filter(FLOW).should_follow

    assert not follows("lag.A.B") and not follows("lag.A.C")
    assert follows("lag") and follows("readers")


def test_a_group_with_other_braces_is_refused() -> None:
    found = problems_with("A->B.lag.group = x.{flow}\n")

    assert any("lag.group" in each and "no other braces" in each for each in found)
