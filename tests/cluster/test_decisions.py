"""What operators decide holds for drivers that run, that come later, and that take over."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from heliograph.config.load import load_config
from heliograph.decisions.decide import (
    DecidedMeanwhile,
    Draft,
    Outcome,
    decide,
    decide_together,
)
from heliograph.decisions.decision import BadDecision, Decision, Verb, scope_of
from heliograph.decisions.record import decisions_of
from heliograph.inspect.flow_status import LaneStatus
from heliograph.inspect.status import StatusReader
from heliograph.ledger.access import LedgerAccess
from heliograph.model import Paused
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.cluster.test_cli import heliograph
from tests.kit.clusters import TopicNames
from tests.kit.inside import InsideMirror, running_inside
from tests.kit.mirror import Route, lasting_topic, route, write_config
from tests.kit.records import NewRec, numbered, produce, read_all
from tests.kit.topics import create_topic, delete_topic, wait_until

_RECORDS: Final = 100
_FOLLOW_S_MAX: Final = 2.0
_BULK: Final = 16_000
_MEASURED_S: Final = 6.0
_BUSY_S: Final = 6.0
"""What a busy machine may add to it."""


@pytest.fixture
def way(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> Iterator[tuple[Route, str, str]]:
    """A flow of its own with two topics, so that no other test decides about it."""
    orders = lasting_topic(pair["A"], topic("orders"), partitions=2)
    logs = lasting_topic(pair["A"], topic("logs"))
    number = orders.rpartition("-")[2]
    source, target = f"dA{number}", f"dB{number}"
    file = write_config(
        tmp_path / "mm2.properties",
        {source: pair["A"], target: pair["B"]},
        {f"{source}->{target}": {"topics": f"{orders}, {logs}"}},
    )
    yield route(file, (source, pair["A"]), (target, pair["B"])), orders, logs


def said(*words: str) -> tuple[int, Any]:
    """The exit code and the JSON that a command printed, or the sentence it failed with."""
    found = heliograph(*words, "--json")
    return (found.code, found.err) if found.code else (0, found.document)


def decided(way: Route, verb: str, *words: str) -> Any:
    code, found = said(verb, str(way.config), *words)
    assert code == 0, found
    return found["flows"][0]


def lane_states(inside: InsideMirror, topic: str) -> dict[int, bool]:
    return {
        lane.source.partition: isinstance(at.state, Paused)
        for lane, at in inside.slots.progress().items()
        if lane.source.topic == topic
    }


def await_followed(wanted: Any, what: str) -> float:
    began_s = time.monotonic()
    wait_until(wanted, what, timeout_s=_FOLLOW_S_MAX + _BUSY_S, poll_s=0.05)
    return time.monotonic() - began_s


def statuses(way: Route) -> list[LaneStatus]:
    async def read() -> list[LaneStatus]:
        reader = StatusReader(load_config(way.config))
        try:
            return list((await reader.read()).lanes)
        finally:
            await reader.close()

    return asyncio.run(read())


def test_a_paused_topic_stands_still_until_resumed_and_the_others_go_on(
    way: tuple[Route, str, str],
) -> None:
    flow, orders, logs = way
    produce(flow.source, orders, numbered(_RECORDS))
    with running_inside(flow.config, leased=True) as inside:
        flow.await_records(orders, _RECORDS)

        paused = decided(flow, "pause", "--topic", orders, "--why", "a test", "--for", "1h")
        followed_s = await_followed(
            lambda: lane_states(inside, orders) == {0: True, 1: True}, "both lanes paused"
        )
        produce(flow.source, orders, numbered(_RECORDS, start=_RECORDS))
        produce(flow.source, logs, numbered(_RECORDS))
        flow.await_records(logs, _RECORDS)
        held = flow.appended(orders)
        shown = {str(lane.lane.source.topic): lane for lane in statuses(flow)}
        # The narrower wins: one partition goes on, the other stays.
        decided(flow, "resume", "--topic", orders, "--partition", "1")
        await_followed(lambda: lane_states(inside, orders) == {0: True, 1: False}, "one resumed")
        decided(flow, "resume", "--topic", orders)
        flow.await_records(orders, 2 * _RECORDS)

    assert paused["written"]
    assert paused["carried_by"] is not None
    assert [(c["before"], c["after"]) for c in paused["changes"]] == [("copying", "paused")]
    assert followed_s < _FOLLOW_S_MAX + _BUSY_S
    assert held == _RECORDS
    assert shown[orders].state == "paused"
    assert "a test, until" in shown[orders].detail
    assert shown[logs].state != "paused"
    assert flow.assert_arrives(orders) == 2 * _RECORDS
    flow.assert_exact_map(orders)


def test_what_was_decided_while_no_driver_ran_holds_for_the_next_and_for_one_that_takes_over(
    way: tuple[Route, str, str],
) -> None:
    flow, orders, logs = way
    produce(flow.source, orders, numbered(_RECORDS))
    produce(flow.source, logs, numbered(_RECORDS))

    before = decided(flow, "pause", "--topic", f"{orders}|nothing-else", "--why", "not yet")
    with running_inside(flow.config, leased=True) as first:
        flow.await_records(logs, _RECORDS)
        states = lane_states(first, orders)
        appended = flow.appended(orders)
    with running_inside(flow.config, leased=True) as second:
        wait_until(lambda: len(second.slots.progress()) == 3, "all lanes", timeout_s=30)
        taken_over = lane_states(second, orders)
        withdrawn = said("decisions", str(flow.config), "--withdraw", before["decision"]["id"])
        flow.await_records(orders, _RECORDS)
    _, history = said("decisions", str(flow.config), "--history")
    _, standing = said("decisions", str(flow.config))

    assert before["carried_by"] is None
    assert states == taken_over == {0: True, 1: True}
    assert appended == 0
    assert withdrawn[0] == 0
    (kept,) = history["decisions"]
    assert (kept["verb"], kept["why"]) == ("pause", "not yet")
    assert kept["state"].startswith("withdrawn by ")
    assert standing["decisions"] == []
    flow.assert_exact_map(orders)


def test_excluded_topics_and_stopped_flows_leave_the_slots_and_come_back_where_they_stood(
    way: tuple[Route, str, str],
) -> None:
    flow, orders, logs = way
    produce(flow.source, orders, numbered(_RECORDS))
    produce(flow.source, logs, numbered(_RECORDS))
    with running_inside(flow.config, leased=True) as inside:
        flow.await_records(orders, _RECORDS)
        flow.await_records(logs, _RECORDS)

        decided(flow, "exclude", "--topic", orders)
        await_followed(lambda: not lane_states(inside, orders), "orders left")
        excluded = {str(lane.lane.source.topic): lane.state for lane in statuses(flow)}
        decided(flow, "stop", "--why", "a test")
        await_followed(lambda: not inside.slots.progress(), "all lanes left")
        stopped = {lane.state for lane in statuses(flow)}
        produce(flow.source, orders, numbered(_RECORDS, start=_RECORDS))
        produce(flow.source, logs, numbered(_RECORDS, start=_RECORDS))
        decided(flow, "start")
        flow.await_records(logs, 2 * _RECORDS)
        held = flow.appended(orders)
        decided(flow, "include", "--topic", orders)
        flow.await_records(orders, 2 * _RECORDS)

    assert excluded[orders] == "excluded" != excluded[logs]
    assert stopped == {"stopped"}
    assert held == _RECORDS
    assert flow.assert_arrives(orders) == flow.assert_arrives(logs) == 2 * _RECORDS
    flow.assert_exact_map(orders)


def test_a_lane_is_rewound_while_the_mirror_runs_and_copies_again_from_there(
    way: tuple[Route, str, str],
) -> None:
    flow, orders, logs = way
    produce(flow.source, logs, numbered(_RECORDS))
    produce(flow.source, orders, numbered(_RECORDS))
    with running_inside(flow.config, leased=True):
        flow.await_records(logs, _RECORDS)
        flow.await_records(orders, _RECORDS)

        rewound = decided(flow, "rewind", "--topic", logs, "--to", "40")
        flow.await_records(logs, 2 * _RECORDS - 40)
        refused = decided(flow, "rewind", "--topic", logs, "--to", "999999")
        await_followed(lambda: all_over(flow), "both rewinds over")
        produce(flow.source, logs, numbered(_RECORDS, start=_RECORDS))
        flow.await_records(logs, 3 * _RECORDS - 40)

    once = [record.content for record in read_all(flow.source, logs)[0]]
    found = [record.content for record in read_all(flow.target, flow.renamed(logs))[0]]
    assert rewound["changes"][0]["after"] == "goes on to 40"
    assert refused["written"]
    assert found == once[:_RECORDS] + once[40:_RECORDS] + once[_RECORDS:]
    assert flow.assert_arrives(orders) == _RECORDS


def all_over(way: Route) -> bool:
    return said("decisions", str(way.config)) == (0, {"decisions": [], "failed_over": []})


def test_a_throttle_is_held_while_lanes_catch_up_and_lifted_again(
    way: tuple[Route, str, str],
) -> None:
    flow, orders, logs = way
    bulk = [NewRec(value=os.urandom(1_000)) for _ in range(_BULK)]
    produce(flow.source, orders, bulk, batch_bytes_max=16_384)
    produce(flow.source, logs, numbered(_RECORDS))

    said = decided(flow, "throttle", "1MB/s", "--topic", orders, "--for", "1h")
    with running_inside(flow.config, leased=True) as inside:

        def received() -> int:
            found = inside.slots.progress().items()
            return sum(at.received_bytes for lane, at in found if lane.source.topic == orders)

        flow.await_records(logs, _RECORDS)
        wait_until(lambda: received() > 1_000_000, "the first megabyte", timeout_s=30, poll_s=0.05)
        began_s, before = time.monotonic(), received()
        time.sleep(_MEASURED_S)
        rate = (received() - before) / (time.monotonic() - began_s)
        shown = {str(lane.lane.source.topic): lane.decided for lane in statuses(flow)}
        decided(flow, "throttle", "none", "--topic", orders)
        flow.await_records(orders, _BULK, timeout_s=20)

    assert said["changes"][0]["after"] == "copying, at most 1 MB/s"
    assert rate == pytest.approx(1_000_000, rel=0.05)
    assert [each.bytes_per_s for each in shown[orders].throttles] == [1_000_000]
    assert shown[logs].throttles == ()
    assert flow.assert_arrives(orders) == _BULK


def test_what_cannot_be_decided_is_refused_in_one_sentence_and_nothing_is_written(
    way: tuple[Route, str, str],
) -> None:
    flow, orders, _ = way
    file = str(flow.config)
    refused = {
        "mirrors no topic": ("pause", file, "--topic", "no-such-topic"),
        "matches": ("pause", file, "--topic", "no-such-.*"),
        "has no partition 7": ("pause", file, "--topic", orders, "--partition", "7"),
        "name the topic": ("pause", file, "--partition", "0"),
        "neither a name nor a regex": ("pause", file, "--topic", "ord(ers"),
        "in the past": ("pause", file, "--until", "2020-01-31T04:03:00Z"),
        "not a rate": ("throttle", file, "fast"),
        "not a list of numbers": ("pin", file, "--slots", "first"),
        "x->y": ("pause", file, "--flow", "x->y"),
        "has a decision 0123456789": ("decisions", file, "--withdraw", "0123456789"),
    }

    answers = {part: said(*words) for part, words in refused.items()}
    nothing = decided(flow, "resume")
    dry = decided(flow, "pause", "--dry-run")
    _, history = said("decisions", file, "--history")

    for part, (code, sentence) in answers.items():
        assert code != 0, part
        assert part in sentence, sentence
    assert nothing["decision"] is None
    assert not dry["written"]
    assert len(dry["changes"]) == 2
    assert history["decisions"] == []


def test_a_topic_that_is_gone_is_remarked_and_what_is_decided_holds_when_it_is_back(
    way: tuple[Route, str, str],
) -> None:
    flow, orders, logs = way
    produce(flow.source, logs, numbered(_RECORDS))
    with running_inside(flow.config, leased=True) as inside:
        flow.await_records(logs, _RECORDS)
        delete_topic(flow.source, logs)

        code, about_gone = said("pause", str(flow.config), "--topic", logs, "--why", "it is gone")
        refused = said("pause", str(flow.config), "--topic", logs, "--partition", "3")
        create_topic(flow.source, logs)
        wait_until(
            lambda: lane_states(inside, logs) == {0: True}, "a paused lane of it", timeout_s=30
        )
        decided(flow, "pause", "--topic", orders)
        await_followed(lambda: lane_states(inside, orders) == {0: True, 1: True}, "others follow")

    (found,) = about_gone["flows"]
    assert (code, found["written"]) == (0, True)
    assert found["remarks"] == [f"{logs} is not on the source at the moment"]
    assert refused[0] != 0
    assert f"{logs} has no partition 3" in refused[1]


def test_decisions_that_are_made_together_are_all_made_or_none(
    way: tuple[Route, str, str],
) -> None:
    flow, orders, logs = way
    config = load_config(flow.config)
    pause = Draft(verb=Verb.PAUSE, scope=scope_of((orders,)), who="ann")
    limit = Draft(verb=Verb.THROTTLE, scope=scope_of((logs,)), bytes_per_s=1000, who="ann")
    nowhere = Draft(verb=Verb.PAUSE, scope=scope_of(("no-such-topic",)), who="ann")

    async def together() -> tuple[list[Outcome], tuple[Decision, ...], tuple[Decision, ...]]:
        ledgers = LedgerAccess(config.clusters)
        try:
            with pytest.raises(BadDecision, match="mirrors no topic"):
                await decide_together(ledgers, config, flow.flow, [pause, nowhere])
            none = decisions_of(await ledgers.view(flow.flow))
            outcomes = await decide_together(ledgers, config, flow.flow, [pause, limit, pause])
            return outcomes, none, decisions_of(await ledgers.view(flow.flow))
        finally:
            await ledgers.close()

    outcomes, none, made = asyncio.run(together())

    assert none == ()
    assert [each.written for each in outcomes] == [True, True, False]
    assert outcomes[2].remarks == ("nothing changes: it is so already",)
    assert [(each.verb, each.scope.topics) for each in made] == [
        (Verb.PAUSE, (orders,)),
        (Verb.THROTTLE, (logs,)),
    ]


def test_of_two_who_decide_at_once_none_is_lost_and_one_who_asked_to_be_first_is_told(
    way: tuple[Route, str, str],
) -> None:
    flow, orders, logs = way
    config = load_config(flow.config)

    async def race() -> tuple[list[Any], list[str]]:
        mine, yours = LedgerAccess(config.clusters), LedgerAccess(config.clusters)
        try:
            drafts = [
                Draft(verb=Verb.PAUSE, scope=scope_of((name,)), who=name) for name in (orders, logs)
            ]
            # Both look before either writes.
            await decide(mine, config, flow.flow, drafts[0], write=False)
            first = Draft(verb=Verb.THROTTLE, bytes_per_s=1000, who="first")
            await decide(mine, config, flow.flow, first)
            seen = frozenset({decisions_of(await mine.view(flow.flow))[0].id})
            ends = await asyncio.gather(
                decide(mine, config, flow.flow, drafts[0], seen=seen),
                decide(yours, config, flow.flow, drafts[1], seen=seen),
                return_exceptions=True,
            )
            await asyncio.gather(
                decide(mine, config, flow.flow, drafts[0]),
                decide(yours, config, flow.flow, drafts[1]),
            )
            made = decisions_of(await mine.view(flow.flow))
            return list(ends), sorted(each.who for each in made)
        finally:
            await mine.close()
            await yours.close()

    ends, made = asyncio.run(race())

    refused = [end for end in ends if isinstance(end, DecidedMeanwhile)]
    assert len(refused) == 1, ends
    assert made == sorted(["first", orders, logs])
