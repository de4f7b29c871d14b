"""A ledger that somebody else wrote to, cut, deleted or upgraded while no mirror ran.

Each is said in a sentence and seen as a state, and no record is lost or repeated for it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from heliograph.ledger.entries import ledger_topic
from heliograph.model import Stalled, StallReason
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.inside import InsideMirror, running_inside
from tests.kit.mirror import RECORDS_ONLY, Route, lasting_topic, route, write_config
from tests.kit.records import NewRec, end_offsets, numbered, produce, read_all
from tests.kit.topics import (
    delete_records_before,
    delete_topic,
    set_topic_config,
    topic_config,
    wait_until,
)

WRITTEN = 30
LEASE_MS = 3_000
GARBAGE = (
    NewRec(key=b"head|orders|0", value=b"{}"),
    NewRec(key=b"\xff\x00", value=b"\xfe"),
    NewRec(key=b"to whom it may concern", value=b"a compacted topic takes any key"),
)


def _mirrored(pair: dict[str, LocalCluster], name: str, folder: Path) -> Route:
    """A flow of its own that has mirrored some records and stopped."""
    lasting_topic(pair["A"], name)
    source, target = (f"a-{name}", pair["A"]), (f"b-{name}", pair["B"])
    file = write_config(
        folder / "mm2.properties",
        dict([source, target]),
        {f"{source[0]}->{target[0]}": {"topics": name, "refresh.topics.interval.seconds": "1"}},
        top={**RECORDS_ONLY, "driver.lease.ms": str(LEASE_MS)},
    )
    lane = route(file, source, target)
    produce(lane.source, name, numbered(WRITTEN))
    with running_inside(file, leased=True):
        lane.await_records(name, WRITTEN)
    return lane


def _keys(lane: Route, name: str) -> list[bytes | None]:
    (found,) = read_all(lane.target, lane.renamed(name)).values()
    return [record.key for record in found]


def _wanted(count: int) -> list[bytes | None]:
    return [record.key for record in numbered(count)]


def test_a_ledger_that_was_deleted_while_nothing_ran_is_missed_and_nothing_is_copied_again(
    pair: dict[str, LocalCluster],
    topic: TopicNames,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("heliograph.copy.strays.UNKNOWN_S_MAX", 0.5)
    name = topic("deleted-ledger")
    lane = _mirrored(pair, name, tmp_path)
    delete_topic(lane.target, ledger_topic(lane.flow.source))
    produce(lane.source, name, numbered(WRITTEN, start=WRITTEN))

    with running_inside(lane.config, leased=True) as driver:
        wait_until(lambda: _stalled(driver) is StallReason.LEDGER_UNUSABLE, "a stalled lane")
        (said,) = driver.stalls
        assert "has records of this flow, but the ledger does not know the lane" in said
        kept = _keys(lane, name)
    # What the sentence says.
    delete_topic(lane.target, lane.renamed(name))
    with running_inside(lane.config, leased=True):
        lane.await_records(name, 2 * WRITTEN)

    assert kept == _wanted(WRITTEN)
    assert _keys(lane, name) == _wanted(2 * WRITTEN)
    lane.assert_exact_map(name)


def _stalled(driver: InsideMirror) -> StallReason | None:
    states = [at.state for at in driver.slots.progress().values()]
    return next((state.reason for state in states if isinstance(state, Stalled)), None)


def _of_a_newer_version(target: LocalCluster, ledger: str) -> None:
    produce(target, ledger, [NewRec(key=b"head|orders|0", value=b'{"v":7,"position":1}')])


def _without_its_beginning(target: LocalCluster, ledger: str) -> None:
    """A broker deletes nothing from a topic that is only compacted."""
    _set_policy(target, ledger, "compact,delete")
    delete_records_before(target, ledger, {0: 2})
    _set_policy(target, ledger, "compact")


def _that_expires(target: LocalCluster, ledger: str) -> None:
    _set_policy(target, ledger, "delete")


def _set_policy(target: LocalCluster, ledger: str, policy: str) -> None:
    set_topic_config(target, ledger, {"cleanup.policy": policy})
    wait_until(lambda: topic_config(target, ledger)["cleanup.policy"] == policy, f"to be {policy}")


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (_of_a_newer_version, "a record of version 7 (head|orders|0), which a newer Heliograph"),
        (_without_its_beginning, "the records before offset 2 were deleted, so the ledger is not"),
        (_that_expires, "has cleanup.policy=delete, it must be compact or its entries expire"),
    ],
)
def test_a_ledger_that_cannot_be_followed_is_named_and_nothing_is_mirrored_by_it(
    damage: Callable[[LocalCluster, str], None],
    sentence: str,
    pair: dict[str, LocalCluster],
    topic: TopicNames,
    tmp_path: Path,
) -> None:
    name = topic("bad-ledger")
    lane = _mirrored(pair, name, tmp_path)
    damage(lane.target, ledger_topic(lane.flow.source))
    ends = end_offsets(lane.target, lane.renamed(name))
    produce(lane.source, name, numbered(WRITTEN, start=WRITTEN))

    with running_inside(lane.config, leased=True) as driver:
        wait_until(lambda: sentence in driver.reconciler.problems.get(lane.flow, ""), sentence)
        assert not driver.leaderships.leads(lane.flow)
        assert driver.slots.progress() == {}

    assert end_offsets(lane.target, lane.renamed(name)) == ends


def test_a_ledger_that_others_wrote_to_is_followed_by_what_is_its_own(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = topic("shared-ledger")
    lane = _mirrored(pair, name, tmp_path)
    produce(lane.target, ledger_topic(lane.flow.source), list(GARBAGE), batch_records_max=1)
    produce(lane.source, name, numbered(WRITTEN, start=WRITTEN))

    with running_inside(lane.config, leased=True) as driver:
        lane.await_records(name, 2 * WRITTEN)
        assert driver.stalls == []

    assert _keys(lane, name) == _wanted(2 * WRITTEN)
    lane.assert_exact_map(name)
