"""Many groups that cannot be followed are one sentence."""

from __future__ import annotations

from heliograph.errors import BrokerError, NotAuthorised
from heliograph.groups.follower import trouble


def test_the_first_groups_are_named_and_the_others_counted() -> None:
    problems: dict[str, BrokerError] = {
        f"g{number}": NotAuthorised(f"missing READ on group g{number}") for number in range(5)
    }

    found = trouble(problems, "their offsets are not written")

    assert isinstance(found, NotAuthorised)
    assert str(found) == (
        "missing READ on group g0; missing READ on group g1; missing READ on group g2; "
        "and 2 more groups: their offsets are not written"
    )


def test_groups_with_different_problems_are_a_problem_of_no_special_kind() -> None:
    problems = {"a": NotAuthorised("no READ"), "b": BrokerError("too large")}

    found = trouble(problems, "no checkpoints of them")

    assert type(found) is BrokerError
    assert str(found) == "no READ; too large: no checkpoints of them"
