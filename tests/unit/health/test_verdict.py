"""One word for a flow and whether it may be cut over, for every thing that may be seen of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from heliograph.config.health import CutoverConfig
from heliograph.health.sight import AuditSight, GroupsSight, LedgerFacts, Losses
from heliograph.health.verdict import Word, verdict
from heliograph.ledger.drill_note import LastDrill
from heliograph.letters.notes import LetterCount
from heliograph.model import StallReason, TopicName
from tests.unit.health.sights import FLOW, NOW_MS, PROVEN, WITH_CANARY, canary, lane, sight

_DAY_MS = 86_400_000
ORDERS = TopicName("orders")


def stalled(reason: StallReason, **more: Any) -> Any:
    return lane(state="stalled", reason=reason.value, lag_records=None, lag_s=None, **more)


def near(overrun_s: float, **more: Any) -> Any:
    made = {"overrun_by": "retention.bytes", "overrun_s": overrun_s, **more}
    return lane(state="copying", lag_records=4, lag_s=1.0, **made)


def lettered(ago_ms: int) -> LedgerFacts:
    count = LetterCount(records=5, last_ms=NOW_MS - ago_ms)
    return replace(PROVEN, letters={ORDERS: count})


def lost(ago_ms: int) -> LedgerFacts:
    return replace(PROVEN, losses={ORDERS: Losses(records=5, last_ms=NOW_MS - ago_ms)})


@pytest.mark.parametrize(
    ("seen", "word", "reason"),
    [
        (sight(), Word.HEALTHY, ""),
        (sight(lane(state="copying", lag_records=9, lag_s=4.0)), Word.HEALTHY, ""),
        (sight(lane(lag_s=301.0, lag_records=4, state="copying")), Word.BEHIND, "301 s, more than"),
        (sight(lane(state="copying", lag_records=None, lag_s=None)), Word.BEHIND, "not known"),
        (sight(lane(state="starting", lag_records=None)), Word.BEHIND, "starting: orders-0"),
        (sight(lane(state="paused", lag_records=3, lag_s=1.0)), Word.BEHIND, "paused, and records"),
        (sight(lane(state="paused")), Word.HEALTHY, ""),
        (sight(stalled(StallReason.CORRUPT_BATCH)), Word.STALLED, "corrupt batch: orders-0"),
        (sight(idle_because="fenced: failover"), Word.STALLED, "fenced: failover"),
        (sight(unknown=("cluster A: no answer",)), Word.STALLED, "not known: cluster A"),
        (sight(waiting=("new-0 (waiting: adopt)",)), Word.STALLED, "1 lane not begun"),
        (sight(stalled(StallReason.RETENTION_OVERRUN)), Word.LOSING, "retention overrun: orders-0"),
        (sight(stalled(StallReason.TARGET_LOST_RECORDS)), Word.LOSING, "target lost records"),
        (sight(facts=lost(1_000)), Word.LOSING, "up to 5 records lost, the last 1 second ago"),
        (sight(facts=lost(2 * _DAY_MS)), Word.HEALTHY, ""),
        (sight(facts=lettered(1_000)), Word.BEHIND, "5 dead letters, the last 1 second ago"),
        (sight(near(90.0)), Word.BEHIND, "retention.bytes may delete records that wait in 90 s"),
        (sight(near(0.0)), Word.BEHIND, "records that wait now: orders-0"),
        (sight(near(90.0, retention_s=120.0)), Word.HEALTHY, ""),
        (sight(near(0.0, overrun_by="log start")), Word.LOSING, "the source has deleted records"),
    ],
)
def test_the_word_follows_from_what_is_seen(seen: Any, word: Word, reason: str) -> None:
    found = verdict(seen, FLOW)

    assert found.word is word
    if reason:
        assert reason in found.reasons[0].text
    assert bool(found.reasons) == (word is not Word.HEALTHY)


def test_the_worst_word_counts_and_every_reason_is_told() -> None:
    seen = sight(
        lane("slow", lag_s=999.0, lag_records=1, state="copying"),
        replace(stalled(StallReason.NOT_AUTHORISED), topic=TopicName("hidden")),
        facts=lost(1_000),
    )

    found = verdict(seen, FLOW)

    assert [reason.word for reason in found.reasons] == [Word.LOSING, Word.STALLED, Word.BEHIND]


def test_ten_thousand_stalled_lanes_are_one_sentence() -> None:
    lanes = [replace(stalled(StallReason.BUG), partition=number) for number in range(10_000)]

    (reason,) = verdict(sight(*lanes), FLOW).reasons

    assert reason.text == "bug: orders-0, orders-1, orders-2 and 9,997 more"


def test_a_late_canary_is_behind_and_one_that_is_off_is_not_missed() -> None:
    late = sight(facts=canary(waiting_ms=NOW_MS - 31_000))
    in_time = sight(facts=canary(waiting_ms=NOW_MS - 29_000))

    assert verdict(late, WITH_CANARY).word is Word.BEHIND
    assert verdict(in_time, WITH_CANARY).word is Word.HEALTHY
    assert verdict(late, FLOW).word is Word.HEALTHY


def drilled(at_ms: int, how: Any = "pass") -> LedgerFacts:
    return replace(PROVEN, drill=LastDrill(at_ms=at_ms, verdict=how, reasons=("one lost",)))


def audited(at_ms: int, differs: int = 0) -> LedgerFacts:
    return replace(PROVEN, audit=AuditSight(at_ms=at_ms, differs=differs))


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (sight(lane(state="copying", lag_records=3, lag_s=0.1)), "3 records not copied yet"),
        (sight(lane(grew=True)), "producers still write: orders-0"),
        (sight(lane(newest_ms=NOW_MS - 59_000)), "producers still write: orders-0"),
        (sight(groups=None), "consumer groups were not read"),
        (sight(groups=GroupsSight(untranslated=("billing",))), "cannot be translated: billing"),
        (sight(groups=GroupsSight(unknown=("cluster B: no",))), "not known: groups: cluster B"),
        (sight(facts=replace(PROVEN, audit=None)), "no audit was made"),
        (sight(facts=replace(PROVEN, drill=None)), "no drill was made"),
        (sight(facts=audited(NOW_MS - 8 * _DAY_MS)), "the last audit was 8 days ago, more than 7"),
        (sight(facts=audited(NOW_MS, differs=2)), "the last audit found 2 records that differ"),
        (sight(facts=drilled(NOW_MS - 31 * _DAY_MS)), "the last drill was 31 days ago"),
        (sight(facts=drilled(NOW_MS, "fail")), "the last drill failed: one lost"),
        (sight(unknown=("cluster A: no answer",)), "not known: cluster A"),
        (sight(idle_because="no driver mirrors it"), "no driver mirrors it"),
        (sight(stalled(StallReason.BUG)), "bug: orders-0"),
        (sight(facts=lost(1)), "lost"),
    ],
)
def test_each_of_these_alone_stands_in_the_way_of_a_cut_over(seen: Any, reason: str) -> None:
    found = verdict(seen, FLOW).cutover

    assert not found.is_ready
    assert found.word == "not yet"
    assert any(reason in text for text in found.reasons), found.reasons
    assert len(found.reasons) == 1, found.reasons


def test_a_flow_that_has_all_it_needs_is_ready() -> None:
    found = verdict(sight(), FLOW).cutover

    assert (found.is_ready, found.reasons, found.remarks) == (True, (), ())


def test_a_flow_without_a_lane_is_not_ready() -> None:
    seen = replace(sight(), lanes=())

    assert verdict(seen, FLOW).cutover.reasons == ("no lane has begun",)


def test_heartbeats_and_canaries_that_never_rest_do_not_stand_in_the_way() -> None:
    own = lane("heartbeats", is_own=True, grew=True, newest_ms=NOW_MS, lag_records=1, lag_s=0.1)

    assert verdict(sight(lane(), own), FLOW).cutover.is_ready


def test_offsets_that_a_failover_writes_are_a_remark() -> None:
    found = verdict(sight(groups=GroupsSight(behind=("billing",))), FLOW).cutover

    assert found.is_ready
    assert found.remarks == ("a failover writes offsets of: billing",)


def test_what_the_file_does_not_ask_for_is_not_missed() -> None:
    relaxed = FLOW.model_copy(update={"cutover": CutoverConfig(quiet_s=0, audit_s=0, drill_s=0)})
    seen = sight(lane(newest_ms=NOW_MS), facts=LedgerFacts())

    assert verdict(seen, relaxed).cutover.is_ready
