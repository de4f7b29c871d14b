"""What goes wrong on either side is seen, stops one lane only, and costs no record."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from heliograph.cli.status import status
from heliograph.model import OffsetRange, StallReason
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.exact import assert_exact_lane
from tests.kit.mirror import Route, lasting_topic, route, write_config
from tests.kit.records import (
    NewRec,
    Rec,
    end_offsets,
    numbered,
    open_transaction,
    produce,
    read_all,
)
from tests.kit.runs import WITHOUT_SPARK, MirrorRun, running_mirror
from tests.kit.topics import delete_records_before, delete_topic, set_topic_config, wait_until

_RETRY_S_MAX = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Flows:
    run: MirrorRun
    wary: Route
    """Stalls whatever it meets."""
    bold: Route
    """Goes on by its policies."""


@pytest.fixture(scope="module")
def flows(
    pair: dict[str, LocalCluster], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Flows]:
    a, b = pair["A"], pair["B"]
    config = write_config(
        tmp_path_factory.mktemp("faults") / "mm2.properties",
        {"wary": a, "bold": a, "to": b},
        {
            "wary->to": {"topics": "wary-.*", "on.existing": "refuse"},
            "bold->to": {
                "topics": "bold-.*",
                "on.retention.overrun": "skip",
                "on.topic.recreated": "restart",
            },
        },
    )
    with running_mirror(config, program=WITHOUT_SPARK) as run:
        yield Flows(
            run=run,
            wary=route(config, ("wary", a), ("to", b)),
            bold=route(config, ("bold", a), ("to", b)),
        )


def _assert_others_go_on(one: Route, topic: TopicNames) -> None:
    name = lasting_topic(one.source, topic(f"{one.flow.source}-others"))
    produce(one.source, name, numbered(50))
    assert one.assert_arrives(name) == 50


def _contents(records: list[Rec]) -> list[object]:
    return [record.content for record in records]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    name: str
    said: str
    held: dict[int, int]
    """Where the target ended while the lane was stalled."""


@pytest.fixture(scope="module")
def refused(flows: Flows) -> Refused:
    """A lane whose batch was too large for the target, until the limit was raised.

    It is tried again every half minute, so what comes of it is looked at last.
    """
    wary = flows.wary
    name = _limited(wary, "wary-limit", bytes_max=5_000)
    produce(wary.source, name, numbered(10))
    wary.assert_arrives(name)
    produce(wary.source, name, [NewRec(value=bytes(20_000))])
    produce(wary.source, name, numbered(10, start=100))
    said = wary.await_stall(name, StallReason.REFUSED_BY_TARGET)
    held = end_offsets(wary.target, wary.renamed(name))
    set_topic_config(wary.target, wary.renamed(name), {"max.message.bytes": None})
    return Refused(name=name, said=said, held=held)


def test_a_batch_the_target_refuses_stalls_its_lane_only(
    flows: Flows, refused: Refused, topic: TopicNames
) -> None:
    _assert_others_go_on(flows.wary, topic)

    assert "MESSAGE_TOO_LARGE" in refused.said
    assert "source offsets [10, " in refused.said
    assert refused.held == {0: 10}


def _limited(one: Route, name: str, *, bytes_max: int) -> str:
    """A topic that takes less on the target; created there first, for settings act with a delay."""
    limit = {"max.message.bytes": str(bytes_max)}
    lasting_topic(one.target, one.renamed(name), config=limit)
    return lasting_topic(one.source, name)


def test_tiny_batches_that_only_fit_apart_are_sent_apart(flows: Flows, topic: TopicNames) -> None:
    wary = flows.wary
    name = _limited(wary, topic("wary-apart"), bytes_max=2_000)

    produce(wary.source, name, numbered(500, start=100, value_bytes=800), batch_records_max=1)

    assert wary.assert_arrives(name) == 500


def test_a_recreated_source_topic_stalls_its_lane(flows: Flows, topic: TopicNames) -> None:
    wary = flows.wary
    name = _recreated(wary, topic("wary-recreated"))

    said = wary.await_stall(name, StallReason.TOPIC_RECREATED)
    _assert_others_go_on(wary, topic)

    assert "deleted and created again" in said
    assert end_offsets(wary.target, wary.renamed(name)) == {0: 100}


def test_a_recreated_source_topic_goes_on_where_asked_to(flows: Flows, topic: TopicNames) -> None:
    bold = flows.bold
    name = _recreated(bold, topic("bold-recreated"))

    bold.await_records(name, 130)

    (mirrored,) = read_all(bold.target, bold.renamed(name)).values()
    (wanted,) = read_all(bold.source, name).values()
    assert [rec.value for rec in mirrored[:100]] == [rec.value for rec in numbered(100)]
    assert _contents(mirrored[100:]) == _contents(wanted)
    (lane,) = bold.lane_records(name).values()
    assert_exact_lane(lane, wanted, mirrored)


def test_a_topic_recreated_before_anything_was_mirrored_goes_on_where_asked_to(
    flows: Flows, topic: TopicNames
) -> None:
    bold = flows.bold
    name = lasting_topic(bold.source, topic("bold-renewed"))
    wait_until(lambda: bool(bold.lane_records(name)), "the lane's start in the ledger", poll_s=0.3)
    for _ in range(2):
        former = bold.lane_records(name)[0].starts[-1].source_topic_id
        delete_topic(bold.source, name)
        lasting_topic(bold.source, name)
        wait_until(
            lambda left=former: bold.lane_records(name)[0].starts[-1].source_topic_id != left,  # type: ignore[misc]
            "the lane's start on the recreated topic in the ledger",
            poll_s=0.3,
        )
    produce(bold.source, name, numbered(30))

    assert bold.assert_arrives(name) == 30
    bold.assert_exact_map(name)


def _recreated(one: Route, name: str) -> str:
    """100 records mirrored, then another topic of that name with 30."""
    lasting_topic(one.source, name)
    produce(one.source, name, numbered(100))
    one.assert_arrives(name)
    delete_topic(one.source, name)
    lasting_topic(one.source, name)
    produce(one.source, name, numbered(30, start=5_000))
    return name


def test_records_deleted_before_they_were_mirrored_stall_with_the_exact_range(
    flows: Flows, topic: TopicNames
) -> None:
    wary = flows.wary
    name = _overrun(wary, topic("wary-overrun"))

    said = wary.await_stall(name, StallReason.RETENTION_OVERRUN)
    _assert_others_go_on(wary, topic)

    assert "the 50 offsets [10, 60) are gone" in said
    assert end_offsets(wary.target, wary.renamed(name)) == {0: 10}


def test_records_deleted_before_they_were_mirrored_are_counted_and_skipped_where_asked_to(
    flows: Flows, topic: TopicNames
) -> None:
    bold = flows.bold
    name = _overrun(bold, topic("bold-overrun"))

    (wanted,) = read_all(bold.source, name).values()
    bold.await_records(name, 10 + len(wanted))

    (mirrored,) = read_all(bold.target, bold.renamed(name)).values()
    assert _contents(mirrored[10:]) == _contents(wanted)
    assert wanted[0].offset == 60
    (lane,) = bold.lane_records(name).values()
    assert [loss.lost for loss in lane.losses] == [OffsetRange(start=10, end=60)]
    assert_exact_lane(lane, wanted, mirrored, gaps=False)


def test_records_deleted_again_before_the_lane_went_on_are_counted_too(
    flows: Flows, topic: TopicNames
) -> None:
    bold = flows.bold
    name = lasting_topic(bold.source, topic("bold-twice"))
    lost = [OffsetRange(start=0, end=50), OffsetRange(start=50, end=90)]
    wait_until(lambda: bool(bold.lane_records(name)), "the lane's start in the ledger", poll_s=0.3)
    # Two open transactions: the first goes with the first deletion, then the second one holds back
    # what is left, so that nothing is mirrored between the two deletions.
    opened = [
        open_transaction(
            bold.source, name, numbered(50, start=100 * part), transactional_id=f"{name}-{part}"
        )
        for part in range(2)
    ]
    with opened[0], opened[1]:
        produce(bold.source, name, numbered(20, start=500))
        delete_records_before(bold.source, name, {0: 50})
        bold.await_losses(name, lost[0])
        delete_records_before(bold.source, name, {0: 90})
        bold.await_losses(name, *lost)

    count = bold.assert_arrives(name)

    assert count == 30
    bold.await_losses(name, *lost)
    bold.assert_exact_map(name)


def _overrun(one: Route, name: str) -> str:
    """10 records mirrored; 100 more written, of which the first 50 are deleted unseen."""
    lasting_topic(one.source, name)
    produce(one.source, name, numbered(10))
    one.assert_arrives(name)
    # Nothing behind the first record of an open transaction can be read, so the lane waits.
    waiting = numbered(10, start=100)
    with open_transaction(one.source, name, waiting, transactional_id=f"{name}-open"):
        produce(one.source, name, numbered(90, start=200))
        delete_records_before(one.source, name, {0: 60})
    return name


def test_records_of_others_in_a_mirrored_topic_are_counted_and_the_map_stays_exact(
    flows: Flows, topic: TopicNames, capsys: pytest.CaptureFixture[str]
) -> None:
    wary = flows.wary
    name = lasting_topic(wary.source, topic("wary-foreign"))
    produce(wary.source, name, numbered(20))
    wary.assert_arrives(name)
    for number in range(3):
        intruders = [NewRec(key=b"intruder", value=b"%d" % number)] * (number + 1)
        produce(wary.target, wary.renamed(name), intruders)
        produce(wary.source, name, numbered(20, start=100 * (number + 1)))
        wary.await_records(name, 20 * (number + 2) + sum(range(number + 2)))

    (wanted,) = read_all(wary.source, name).values()
    (mirrored,) = read_all(wary.target, wary.renamed(name)).values()
    own = [rec for rec in mirrored if rec.key != b"intruder"]
    assert _contents(own) == _contents(wanted)
    assert len(mirrored) - len(own) == _foreign_in_status(wary, name, capsys) == 6
    wary.assert_exact_map(name)


def test_records_of_others_written_at_the_same_time_cost_no_mirrored_record(
    flows: Flows, topic: TopicNames, capsys: pytest.CaptureFixture[str]
) -> None:
    wary = flows.wary
    name = lasting_topic(wary.source, topic("wary-crowded"))
    produce(wary.source, name, numbered(20))
    wary.assert_arrives(name)
    for number in range(30):
        produce(wary.source, name, numbered(40, start=100 * number), linger_ms=0)
        produce(wary.target, wary.renamed(name), [NewRec(key=b"intruder", value=b"")])

    wary.await_records(name, 20 + 30 * 41)

    (wanted,) = read_all(wary.source, name).values()
    (mirrored,) = read_all(wary.target, wary.renamed(name)).values()
    own = [rec for rec in mirrored if rec.key != b"intruder"]
    assert _contents(own) == _contents(wanted)
    assert _foreign_in_status(wary, name, capsys) == 30
    wary.assert_exact_map(name)


def _foreign_in_status(one: Route, name: str, capsys: pytest.CaptureFixture[str]) -> int:
    """What `heliograph status` says of the topic, of whose lanes none is stalled."""
    capsys.readouterr()
    status(one.config, topic=[name], as_json=True)
    told = json.loads(capsys.readouterr().out)
    (flow,) = (flow for flow in told["flows"] if flow["flow"] == str(one.flow))
    (lane,) = flow["lanes"]
    found: int = lane["foreign_records"]
    assert flow["foreign_records"] == found
    return found


def test_a_target_topic_with_other_records_is_appended_to_and_the_map_starts_there(
    flows: Flows, topic: TopicNames
) -> None:
    bold = flows.bold
    name = topic("bold-existing")
    lasting_topic(bold.target, bold.renamed(name))
    produce(bold.target, bold.renamed(name), [NewRec(key=b"older", value=b"")] * 7)
    lasting_topic(bold.source, name)
    produce(bold.source, name, numbered(30))

    bold.await_records(name, 37)

    (wanted,) = read_all(bold.source, name).values()
    (mirrored,) = read_all(bold.target, bold.renamed(name)).values()
    assert [rec.key for rec in mirrored[:7]] == [b"older"] * 7
    assert _contents(mirrored[7:]) == _contents(wanted)
    (lane,) = bold.lane_records(name).values()
    assert lane.starts[0].target_offset == 7
    assert_exact_lane(lane, wanted, mirrored)


def test_a_target_topic_with_other_records_is_refused_where_asked_to(
    flows: Flows, topic: TopicNames
) -> None:
    wary = flows.wary
    name = topic("wary-existing")
    lasting_topic(wary.target, wary.renamed(name))
    produce(wary.target, wary.renamed(name), [NewRec(key=b"older", value=b"")] * 7)
    lasting_topic(wary.source, name)
    produce(wary.source, name, numbered(30))

    said = wary.await_stall(name, StallReason.TARGET_NOT_EMPTY)
    _assert_others_go_on(wary, topic)

    assert "holds 7 records" in said
    assert end_offsets(wary.target, wary.renamed(name)) == {0: 7}


def test_a_lane_that_was_refused_goes_on_once_the_limit_is_raised(
    flows: Flows, refused: Refused
) -> None:
    wary = flows.wary

    count = wary.assert_arrives(refused.name, timeout_s=_RETRY_S_MAX)

    assert count == 21
    wary.assert_exact_map(refused.name)


def test_no_slot_was_lost_over_any_of_it(flows: Flows) -> None:
    time.sleep(0.5)

    assert flows.run.exit_code is None
    assert not [line for line in flows.run.said.splitlines() if "starting another" in line]
