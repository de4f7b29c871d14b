"""Which figures are bad, which are nearly so, and which are not known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from heliograph.health.conditions import OTHERS, SUBJECTS_MAX, Condition, Kind, Level, conditions
from heliograph.health.sight import (
    AuditSight,
    Certificate,
    FlowSight,
    Foreign,
    LedgerFacts,
    Losses,
    Measured,
)
from heliograph.lag.figures import NEVER
from heliograph.ledger.drill_note import LastDrill
from heliograph.letters.notes import LetterCount
from heliograph.model import TopicName
from tests.unit.health.sights import (
    FLOW,
    NOW_MS,
    PROVEN,
    WITH_CANARY,
    canary,
    lane,
    sight,
    with_alarms,
)

_DAY_MS = 86_400_000
ORDERS = TopicName("orders")
KNOWN = Measured(ledger_bytes=1)


def found(seen: FlowSight, kind: Kind, flow: Any = FLOW) -> dict[str, Level]:
    return {each.subject: each.level for each in conditions(seen, flow) if each.kind is kind}


def stalled(*, retrying: bool, since_s: int) -> FlowSight:
    made = lane(
        state="stalled",
        reason="corrupt batch",
        lag_records=None,
        lag_s=None,
        retrying=retrying,
        since_ms=NOW_MS - 1000 * since_s,
    )
    return sight(made, measured=KNOWN)


BAD, BETWEEN = {"orders": Level.BAD}, {"orders": Level.BETWEEN}


@pytest.mark.parametrize(
    ("seen", "kind", "expected"),
    [
        (stalled(retrying=False, since_s=0), Kind.STALL, BAD),
        (stalled(retrying=True, since_s=59), Kind.STALL, BETWEEN),
        (stalled(retrying=True, since_s=60), Kind.STALL, BAD),
        (sight(lane(state="starting")), Kind.STALL, BETWEEN),
        (sight(), Kind.STALL, {}),
        (sight(lane(lag_s=301.0)), Kind.LAG, BAD),
        (sight(lane(lag_s=299.0)), Kind.LAG, BETWEEN),
        (sight(lane(lag_s=150.0)), Kind.LAG, {}),
        (sight(lane(lag_s=None)), Kind.LAG, BETWEEN),
        (sight(lane(lag_records=5, overrun_s=3_599.0)), Kind.OVERRUN, BAD),
        (sight(lane(lag_records=5, overrun_s=0.0, overrun_by="log start")), Kind.OVERRUN, BAD),
        (sight(lane(lag_records=5, overrun_s=5_000.0)), Kind.OVERRUN, BETWEEN),
        (sight(lane(lag_records=5, overrun_s=6_000.0)), Kind.OVERRUN, {}),
        (sight(lane(lag_records=5, overrun_s=NEVER, retention_s=NEVER)), Kind.OVERRUN, {}),
        (sight(lane(lag_records=5, overrun_s=500.0, retention_s=600.0)), Kind.OVERRUN, {}),
        (sight(lane(lag_records=5, overrun_s=299.0, retention_s=600.0)), Kind.OVERRUN, BAD),
        (sight(lane(lag_records=5)), Kind.OVERRUN, BETWEEN),
        (sight(lane(lag_records=0)), Kind.OVERRUN, {}),
        (sight(lane(lag_records=5, tombstones_s=10.0)), Kind.TOMBSTONES, BAD),
        (
            sight(lane(lag_records=5, tombstones_s=9_000.0, delete_retention_s=86_400.0)),
            Kind.TOMBSTONES,
            {},
        ),
    ],
)
def test_what_a_lane_shows(seen: FlowSight, kind: Kind, expected: dict[str, Level]) -> None:
    assert found(seen, kind) == expected


def facts(**more: Any) -> FlowSight:
    return sight(facts=replace(PROVEN, **more), measured=KNOWN)


def measured(**more: Any) -> FlowSight:
    return sight(measured=replace(KNOWN, **more), facts=PROVEN)


FLOW_BAD, FLOW_BETWEEN = {"": Level.BAD}, {"": Level.BETWEEN}
FAILED = LastDrill(at_ms=1, verdict="fail", reasons=("one lost",))
LOST = Losses(records=3, last_ms=NOW_MS - 1_000)
LETTERS = LetterCount(records=3, last_ms=NOW_MS - 1_000)
SOON = Certificate(whose="broker b:1 of B", ends_ms=NOW_MS + 13 * _DAY_MS)
LATER = Certificate(whose="broker b:1 of B", ends_ms=NOW_MS + 15 * _DAY_MS)
FOREIGN = Foreign(records=3, grew_ms=NOW_MS, writers="producer ids 4")


@pytest.mark.parametrize(
    ("seen", "kind", "expected"),
    [
        (facts(losses={ORDERS: LOST}), Kind.LOSS, BAD),
        (facts(losses={ORDERS: replace(LOST, last_ms=NOW_MS - 2 * _DAY_MS)}), Kind.LOSS, {}),
        (facts(letters={ORDERS: LETTERS}), Kind.LETTERS, BAD),
        (facts(letters={ORDERS: replace(LETTERS, last_ms=NOW_MS - 2 * _DAY_MS)}), Kind.LETTERS, {}),
        (facts(), Kind.LETTERS, {}),
        (facts(drill=FAILED), Kind.DRILL, FLOW_BAD),
        (facts(drill=replace(FAILED, verdict="not done")), Kind.DRILL, FLOW_BAD),
        (facts(), Kind.DRILL, {}),
        (facts(audit=AuditSight(at_ms=1, differs=1)), Kind.AUDIT, FLOW_BAD),
        (facts(), Kind.AUDIT, {}),
        (measured(ledger_bytes=2**30 + 1), Kind.LEDGER, FLOW_BAD),
        (measured(ledger_bytes=2**30 - 1), Kind.LEDGER, FLOW_BETWEEN),
        (measured(ledger_bytes=None), Kind.LEDGER, FLOW_BETWEEN),
        (measured(), Kind.LEDGER, {}),
        (measured(clocks_s={"B": 11.0}), Kind.CLOCK, {"B": Level.BAD}),
        (measured(clocks_s={"B": -11.0}), Kind.CLOCK, {"B": Level.BAD}),
        (measured(clocks_s={"B": 6.0}), Kind.CLOCK, {"B": Level.BETWEEN}),
        (measured(clocks_s={"B": 5.0}), Kind.CLOCK, {}),
        (measured(certificates=(SOON,)), Kind.CERTIFICATE, {SOON.whose: Level.BAD}),
        (measured(certificates=(LATER,)), Kind.CERTIFICATE, {}),
        (measured(foreign={ORDERS: FOREIGN}), Kind.FOREIGN, BAD),
        (
            measured(foreign={ORDERS: replace(FOREIGN, grew_ms=NOW_MS - 2 * _DAY_MS)}),
            Kind.FOREIGN,
            {},
        ),
        (sight(unknown=("the target does not answer",)), Kind.UNKNOWN, FLOW_BAD),
    ],
)
def test_what_ledger_and_measurements_show(
    seen: FlowSight, kind: Kind, expected: dict[str, Level]
) -> None:
    assert found(seen, kind) == expected


@pytest.mark.parametrize(
    ("wants", "standbys", "seen_ms", "is_missed"),
    [
        ("seen", 0, None, False),
        ("seen", 0, NOW_MS - _DAY_MS, True),
        ("seen", 0, NOW_MS - 8 * _DAY_MS, False),
        ("seen", 1, NOW_MS - _DAY_MS, False),
        ("expected", 0, None, True),
        ("expected", 1, None, False),
        ("off", 0, NOW_MS - _DAY_MS, False),
    ],
)
def test_a_standby_is_missed_where_it_was_expected_or_seen(
    wants: str, standbys: int, seen_ms: int | None, is_missed: bool
) -> None:
    seen = sight(
        facts=replace(PROVEN, standbys=standbys), measured=replace(KNOWN, standby_seen_ms=seen_ms)
    )

    missed = found(seen, Kind.STANDBY, with_alarms(standby=wants))

    assert missed == (FLOW_BAD if is_missed else {})


@pytest.mark.parametrize(
    ("note", "expected"),
    [
        (canary(), {}),
        (canary(waiting_ms=NOW_MS - 31_000), FLOW_BAD),
        (canary(waiting_ms=NOW_MS - 1_000), FLOW_BETWEEN),
        (canary(sent_ms=NOW_MS - 91_000), FLOW_BAD),
        (canary(sent_ms=NOW_MS - 89_000), FLOW_BETWEEN),
        (canary(sent_ms=NOW_MS - 59_000), {}),
        (LedgerFacts(), FLOW_BETWEEN),
    ],
)
def test_a_canary_that_does_not_come_is_seen_within_two_intervals(
    note: LedgerFacts, expected: dict[str, Level]
) -> None:
    assert found(sight(facts=note), Kind.CANARY, WITH_CANARY) == expected


def test_the_worst_lane_of_a_topic_counts_and_those_as_bad_are_named() -> None:
    lanes = [lane(partition=n, lag_s=10.0 * n) for n in range(40)]

    (condition,) = [each for each in conditions(sight(*lanes), FLOW) if each.kind is Kind.LAG]

    assert condition.level is Level.BAD
    assert condition.text.endswith("orders-31, orders-32, orders-33 and 6 more")


def test_many_topics_share_an_alarm_and_those_that_have_one_keep_it() -> None:
    lanes = [lane(f"t{number:03}", lag_s=900.0) for number in range(100)]
    told = {Kind.LAG: frozenset({"t099", "t098"})}

    made = [each for each in conditions(sight(*lanes), FLOW, told) if each.kind is Kind.LAG]

    subjects = {each.subject for each in made}
    assert len(made) == SUBJECTS_MAX + 1
    assert {"t098", "t099", OTHERS} < subjects
    (others,) = [each for each in made if each.subject == OTHERS]
    assert others.text == "80 more topics, the first t018"


def test_texts_are_bounded_and_can_be_printed() -> None:
    shown = lane(state="stalled", reason="bug", detail="x\x1b[31m" * 1_000, lag_s=None)

    made: list[Condition] = list(conditions(sight(shown), FLOW))

    assert all(each.text.isprintable() and len(each.text) <= 300 for each in made)
