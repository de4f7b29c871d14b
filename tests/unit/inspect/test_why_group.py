"""Whether a group's position is translated, and if not, why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heliograph.config.sections import GroupsConfig
from heliograph.inspect.groups import FlowGroups, GroupRow, Verdict
from heliograph.inspect.why_group import GroupWhy, why_of_group
from heliograph.model import TopicName
from heliograph.topics.filters import group_ruling
from tests.unit.cli.canned import GROUPS
from tests.unit.inspect.test_why import facts
from tests.unit.topics.views import FLOW_ID, flow_with

ROW = next(row for row in GROUPS.flows[0].rows if row.translated is not None)
TOPIC = TopicName(ROW.source.topic)


def ask(
    group: str = "billing",
    *rows: GroupRow,
    known: frozenset[str] = frozenset(),
    problems: tuple[str, ...] = (),
    asked: bool = True,
) -> GroupWhy:
    flow = flow_with(groups=GroupsConfig(include=("bill.*", "audit"), exclude=("billing-test",)))
    found = FlowGroups(flow=FLOW_ID, writes_offsets=True, rows=rows, problems=problems)
    ruling = group_ruling(flow, group)
    return why_of_group(facts(flow=flow), TOPIC, group, ruling, found if asked else None, known)


def texts(of: GroupWhy) -> list[str]:
    return [reason.text for reason in of.reasons]


@pytest.mark.parametrize(
    ("group", "said"),
    [
        ("payments", "not followed: no pattern of groups"),
        ("billing-test", "not followed: matches groups.exclude `billing-test`"),
        (
            "heliograph-drill.x",
            "not followed: a drill made it; such groups stay where they are",
        ),
    ],
)
def test_a_group_that_is_not_followed_names_the_rule(group: str, said: str) -> None:
    found = ask(group, asked=False)

    assert (found.followed, found.translated, texts(found)[0]) == (False, False, said)


def test_a_group_that_nearly_matches_gets_a_hint() -> None:
    assert "would match but for upper and lower case" in texts(ask("AUDIT", asked=False))[1]


@pytest.mark.parametrize(
    ("known", "problems", "said"),
    [
        (frozenset({"billing"}), (), f"it has committed no offset on {TOPIC} on cluster source"),
        (
            frozenset({"Billing"}),
            (),
            "cluster source shows no such group (did you mean `Billing`?)",
        ),
        (frozenset[str](), ("cluster A: unreachable",), "cluster A: unreachable"),
    ],
)
def test_a_group_without_a_position_says_why(
    known: frozenset[str], problems: tuple[str, ...], said: str
) -> None:
    found = ask(known=known, problems=problems)

    assert (found.translated, texts(found)) == (False, [said])


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_verdict_is_explained(verdict: Verdict) -> None:
    found = ask("billing", replace(ROW, verdict=verdict), known=frozenset({"billing"}))

    (reason,) = found.reasons
    assert reason.text.startswith(f"partition {ROW.source.partition}: ")
    assert (reason.key == "sync.group.offsets.enabled") is (verdict is Verdict.NOT_WRITTEN)


def test_a_position_is_translated_when_every_partition_is() -> None:
    lost = replace(ROW, translated=None, verdict=Verdict.NOT_TRANSLATABLE)

    assert ask("billing", ROW).translated
    assert not ask("billing", ROW, lost).translated


def test_rows_of_other_topics_are_left_out() -> None:
    elsewhere = replace(ROW, source=replace(ROW.source, topic=TopicName("other")))

    assert ask("billing", ROW, elsewhere).rows == (ROW,)
