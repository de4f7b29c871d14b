"""How an answer reads, and how the command ends."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.cli.why import chosen_pairs, exit_code, headline, reason_lines
from heliograph.config.schema import FlowConfig
from heliograph.inspect.why import FlowWhy, Reason, Standing
from heliograph.inspect.why_document import WhyDocument
from heliograph.inspect.why_group import GroupWhy
from heliograph.inspect.why_reading import Why
from heliograph.model import ClusterAlias, FlowId, TopicName
from tests.unit.api.pretend import AB, BA, CONFIG
from tests.unit.cli.canned import GROUPS

ROW = next(row for row in GROUPS.flows[0].rows if row.translated is not None)


def flow_why(standing: Standing, **fields: Any) -> FlowWhy:
    return FlowWhy(flow=AB, standing=standing, reasons=(), **fields)


def why(*standings: Standing, groups: tuple[GroupWhy, ...] = ()) -> Why:
    return Why(
        at_ms=1, topic=TopicName("orders"), flows=tuple(map(flow_why, standings)), groups=groups
    )


def group(*, rows: bool) -> GroupWhy:
    return GroupWhy(flow=AB, group="g", followed=True, rows=(ROW,) if rows else (), reasons=())


@pytest.mark.parametrize(
    ("found", "asked", "code"),
    [
        (why(Standing.MIRRORED, Standing.DISABLED), None, 0),
        (why(Standing.MIRRORED, Standing.UNKNOWN), None, 0),
        (why(Standing.NOT_MIRRORED, Standing.DISABLED), None, 3),
        (why(Standing.STALLED), None, 3),
        (why(Standing.HELD), None, 3),
        (why(Standing.UNKNOWN, Standing.NOT_MIRRORED), None, 1),
        (why(Standing.MIRRORED, groups=(group(rows=True),)), "g", 0),
        (why(Standing.MIRRORED, groups=(group(rows=False),)), "g", 3),
    ],
)
def test_the_exit_code_says_whether_a_flow_mirrors_it(
    found: Why, asked: str | None, code: int
) -> None:
    assert exit_code(found, asked) == code


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (flow_why(Standing.DISABLED), "A->B: not enabled"),
        (flow_why(Standing.NOT_MIRRORED), "A->B: orders is not mirrored"),
        (
            flow_why(
                Standing.MIRRORED,
                target=TopicName("A.orders"),
                since_ms=1_700_000_000_000,
                states={"idle": 2, "copying": 1},
                lag_records=None,
            ),
            "A->B: orders is mirrored as A.orders, since 2023-11-14T22:13:20+00:00; "
            "3 lanes: 1 copying, 2 idle; lag ?",
        ),
    ],
)
def test_the_first_line_is_the_answer(answer: FlowWhy, said: str) -> None:
    assert headline("orders", answer) == said


def test_a_reason_is_followed_by_its_fix() -> None:
    reason = Reason(text="no pattern", key="A->B.topics", line=4, fix="add it")

    assert list(reason_lines((reason,))) == ["no pattern (line 4: A->B.topics); add it"]


def test_pairs_that_mirror_come_first() -> None:
    off = FlowConfig(id=FlowId(source=ClusterAlias("C"), target=ClusterAlias("A")))
    config = CONFIG.model_copy(update={"pairs": (off, *CONFIG.pairs)})

    assert chosen_pairs(config, None) == (AB, BA, off.id)
    assert chosen_pairs(config, "C -> A") == (off.id,)


def test_an_answer_is_a_document() -> None:
    found = why(Standing.MIRRORED, groups=(group(rows=True),))

    document = WhyDocument.of(found).plain()

    assert document["flows"][0]["standing"] == "mirrored"
    assert document["groups"][0]["offsets"][0]["group"] == ROW.group
